#include "outcome.hpp"

#include "support/random.hpp"

namespace strata::property {

std::uint64_t begin_hash(const std::uint64_t* scalars, std::size_t count) noexcept {
  std::uint64_t hash = count;
  for (std::size_t i = 0; i < count; ++i)
    hash = test::mix(hash ^ scalars[i]);
  return hash;
}

std::vector<std::uint64_t> scalars_of(const Node& node, int first, int member) {
  const std::uint64_t salt = node.step->works[static_cast<std::size_t>(member)].salt;
  if (node.replay < 0) return {salt};
  return {static_cast<std::uint64_t>(first), node.salt, salt};
}

namespace {

class Serial {
 public:
  Serial(const Model& model, const std::vector<Status>& observed)
      : model_(model), observed_(observed) {
    const auto count = static_cast<std::size_t>(model.size());
    out_.status.assign(count, Status::ran);
    out_.certain.assign(count, true);
    out_.throws.assign(count, false);
    out_.seen.resize(count);
    out_.causes.assign(count, Bits(count));
    bad_ = Bits(count);
    for (const Instance& instance : model.instances()) {
      const auto bytes = static_cast<std::size_t>(instance.bytes);
      Image image{std::vector<std::uint8_t>(bytes, fill_byte(instance.storage)),
                  std::vector<bool>(bytes, instance.filled)};
      if (instance.storage < kFirstAllocated) {
        for (std::size_t at = 0; at < bytes; ++at) {
          image.bytes[at] = initial_byte(instance.storage, static_cast<std::int64_t>(at));
        }
      }
      out_.images.push_back(std::move(image));
    }
  }

  Outcome run() {
    for (int i = 0; i < model_.size(); ++i) {
      const Node& node = model_.node(i);
      if (node.host()) {
        act_as_host(i);
      } else {
        decide(i);
        if (bad(i)) bad_.set(i);
        if (out_.status[at(i)] == Status::skipped) forget_creation(i);
        if (out_.status[at(i)] != Status::skipped) {
          for (int m = 0; m < static_cast<int>(node.step->works.size()); ++m)
            do_work(i, m);
        }
      }
    }
    return std::move(out_);
  }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  bool bad(int i) const { return out_.status[at(i)] != Status::ran; }
  Image& image(const Use& use) { return out_.images[at(use.instance)]; }

  /// Status of a submitted node: what it must be, or, where that is open, what was observed.
  void decide(int i) {
    const Node& node = model_.node(i);
    const Status seen = observed_[at(i)];
    const bool poisoned = node.sources.meets(bad_);
    const bool murky = node.murky.meets(bad_);
    const bool cancelled = model_.cancelled_runs()[at(node.run)];
    bool faulty = false;
    for (const Work& work : node.step->works) {
      faulty = faulty || (work.has_body && work.fault != Fault::none);
    }

    const Status if_it_ran = faulty ? Status::failed : Status::ran;
    Status must = poisoned ? Status::skipped : if_it_ran;
    if (!poisoned && (murky || cancelled)) {
      out_.certain[at(i)] = false;
      if (seen == Status::skipped) must = Status::skipped;
    }
    if (seen != must) {
      out_.mistakes.push_back(model_.name(i) + " " + text(seen) + " but should have " +
                              (must == Status::skipped ? "been skipped" : text(must)));
    }
    out_.status[at(i)] = must;
    if (must == Status::skipped) collect_causes(i);
  }

  static const char* text(Status status) {
    switch (status) {
      case Status::ran:
        return "ran";
      case Status::failed:
        return "failed";
      case Status::skipped:
        return "was skipped";
    }
    return "?";
  }

  void collect_causes(int i) {
    Bits from = model_.node(i).sources;
    from |= model_.node(i).murky;
    from &= bad_;
    from.for_each([&](int p) {
      out_.causes[at(i)].set(p);
      out_.causes[at(i)] |= out_.causes[at(p)];
    });
  }

  /// What a task that never ran should have allocated has no initial value that one can rely on.
  void forget_creation(int i) {
    for (const Use& use : model_.node(i).uses) {
      if (use.allocates) image(use).defined.assign(image(use).defined.size(), false);
    }
  }

  void do_work(int i, int member) {
    const Node& node = model_.node(i);
    const Work& work = node.step->works[at(member)];
    if (!work.has_body || work.fault == Fault::before_writing) return;
    const auto scalars = scalars_of(node, node.replay, member);
    std::uint64_t hash = begin_hash(scalars.data(), scalars.size());
    bool defined = true;
    for (const Use& use : node.uses) {
      if (use.member != member || !use.reads || !use.touched) continue;
      for_each_byte(use.view, [&](std::int64_t offset) {
        hash = add_byte(hash, image(use).bytes[at_byte(use, offset)]);
        defined = defined && image(use).defined[at_byte(use, offset)];
      });
    }
    for (const Use& use : node.uses) {
      if (use.member != member || !use.writes || !use.touched) continue;
      std::uint64_t k = 0;
      for_each_byte(use.view, [&](std::int64_t offset) {
        image(use).bytes[at_byte(use, offset)] = written_byte(hash, use.argument, k++);
        image(use).defined[at_byte(use, offset)] = defined;
      });
    }
  }
  static std::size_t at_byte(const Use& use, std::int64_t offset) {
    return static_cast<std::size_t>(use.view.offset + offset);
  }

  void act_as_host(int i) {
    const Node& node = model_.node(i);
    out_.throws[at(i)] = node.sources.meets(bad_);
    out_.certain[at(i)] = !node.murky.meets(bad_);
    if (node.type == NodeType::read) {
      bool defined = true;
      std::vector<std::uint8_t> bytes;
      for (const std::int32_t b : node.uses[0].bytes) {
        bytes.push_back(image(node.uses[0]).bytes[at(b)]);
        defined = defined && image(node.uses[0]).defined[at(b)];
      }
      if (defined) out_.seen[at(i)] = std::move(bytes);
    }
    if (node.type == NodeType::write || node.type == NodeType::overwrite) {
      std::uint64_t k = 0;
      for_each_byte(node.uses[0].view, [&](std::int64_t offset) {
        const std::size_t b = at_byte(node.uses[0], offset);
        image(node.uses[0]).bytes[b] = written_byte(node.step->salt, 0, k++);
        image(node.uses[0]).defined[b] = true;
      });
    }
  }

  const Model& model_;
  const std::vector<Status>& observed_;
  Outcome out_;
  Bits bad_;
};

}  // namespace

Outcome serial_outcome(const Model& model, const std::vector<Status>& observed) {
  return Serial(model, observed).run();
}

}  // namespace strata::property
