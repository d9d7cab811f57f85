// Random chip programs, and what they leave behind when their steps are done one by one.

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "chip_case.hpp"
#include "support/random.hpp"

namespace strata::property::chip_cases {

using test::Random;

// ---- Plain views --------------------------------------------------------------------------------

std::int64_t PlainView::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape)
    count *= extent;
  return count;
}

std::int64_t PlainView::at(std::int64_t e) const {
  std::int64_t word = base;
  for (std::size_t d = shape.size(); d-- > 0;) {
    word += e % shape[d] * strides[d];
    e /= shape[d];
  }
  return word;
}

PlainView PlainView::with(const ViewOp& op) const {
  PlainView view = *this;
  const auto dim = static_cast<std::size_t>(op.dim);
  switch (op.kind) {
    case ViewOp::Kind::slice:
      view.shape[dim] = (op.stop - op.start + op.step - 1) / op.step;
      view.base += op.start * strides[dim];
      view.strides[dim] *= op.step;
      break;
    case ViewOp::Kind::tile:
      for (std::size_t d = 0; d < shape.size(); ++d) {
        view.base += op.tile_start[d] * strides[d];
        view.shape[d] = op.tile_size[d];
      }
      break;
    case ViewOp::Kind::select:
      view.base += op.start * strides[dim];
      view.shape.erase(view.shape.begin() + op.dim);
      view.strides.erase(view.strides.begin() + op.dim);
      break;
    case ViewOp::Kind::transpose:
      std::swap(view.shape[dim], view.shape[static_cast<std::size_t>(op.other)]);
      std::swap(view.strides[dim], view.strides[static_cast<std::size_t>(op.other)]);
      break;
  }
  return view;
}

namespace {

PlainView row_major(std::int64_t base, std::vector<std::int64_t> shape) {
  PlainView view{.base = base, .shape = std::move(shape), .strides = {}};
  view.strides.resize(view.shape.size());
  std::int64_t stride = 1;
  for (std::size_t d = view.shape.size(); d-- > 0; stride *= view.shape[d])
    view.strides[d] = stride;
  return view;
}

// ---- The generator ------------------------------------------------------------------------------

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) { case_.seed = seed; }

  ChipCase run() {
    make_arguments();
    scopes_.emplace_back();
    const std::int64_t steps = random_.between(3, 40);
    values_ = random_.chance(30);
    write_outputs();
    for (std::int64_t i = 0; i < steps; ++i)
      add_step();
    while (scopes_.size() > 1)
      close_scope();
    return std::move(case_);
  }

 private:
  /// What words a task touches, to keep what it reads apart from what it writes: (space, word).
  using Words = std::set<std::pair<std::size_t, std::int64_t>>;

  std::vector<std::int64_t> shape() {
    if (random_.chance(40)) return {random_.between(1, 24)};
    return {random_.between(1, 6), random_.between(1, 8)};
  }

  void make_arguments() {
    case_.memory.resize(static_cast<std::size_t>(random_.between(100, 300)));
    for (std::uint32_t& word : case_.memory)
      word = static_cast<std::uint32_t>(random_());
    const std::int64_t count = random_.between(1, 4);
    for (std::int64_t i = 0; i < count; ++i) {
      PlainView view = row_major(0, shape());
      // Rows with gaps between them.
      if (view.shape.size() == 2) view.strides[0] += random_.between(0, 3);
      std::int64_t reach = 1;
      for (std::size_t d = 0; d < view.shape.size(); ++d)
        reach += (view.shape[d] - 1) * view.strides[d];
      view.base = random_.between(0, static_cast<std::int64_t>(case_.memory.size()) - reach);
      const Access access = random_.chance(20)   ? Access::in
                            : random_.chance(20) ? Access::out
                                                 : Access::inout;
      case_.arguments.push_back({view, access});
    }
  }

  /// What is declared out holds nothing until it is written.
  void write_outputs() {
    for (std::size_t i = 0; i < case_.arguments.size(); ++i) {
      if (case_.arguments[i].access != Access::out) continue;
      Step step{.salt = static_cast<std::uint32_t>(random_())};
      step.arguments.push_back({.view = {.index = i}, .access = Access::out});
      case_.steps.push_back(std::move(step));
    }
  }

  [[nodiscard]] PlainView plain(const ViewRef& ref) const {
    PlainView view =
        ref.temporary ? row_major(0, shapes_[ref.index]) : case_.arguments[ref.index].view;
    for (const ViewOp& op : ref.ops)
      view = view.with(op);
    return view;
  }

  [[nodiscard]] std::vector<std::size_t> live_temporaries() const {
    std::vector<std::size_t> live;
    for (const auto& scope : scopes_)
      live.insert(live.end(), scope.begin(), scope.end());
    return live;
  }

  ViewOp view_op(const PlainView& view) {
    ViewOp op;
    const auto rank = view.shape.size();
    const auto dim = static_cast<std::size_t>(random_.below(rank));
    op.dim = static_cast<int>(dim);
    switch (random_.below(rank == 2 ? 4 : 1)) {
      case 0:
        op.kind = ViewOp::Kind::slice;
        op.start = random_.between(0, view.shape[dim]);
        op.stop = random_.between(op.start, view.shape[dim]);
        if (random_.chance(30)) op.step = random_.between(1, 3);
        break;
      case 1:
        op.kind = ViewOp::Kind::tile;
        for (const std::int64_t extent : view.shape) {
          op.tile_start.push_back(random_.between(0, extent));
          op.tile_size.push_back(random_.between(0, extent - op.tile_start.back()));
        }
        break;
      case 2:
        op.kind = ViewOp::Kind::select;
        if (view.shape[dim] == 0) return view_op(view);
        op.start = random_.between(0, view.shape[dim] - 1);
        break;
      default:
        op.kind = ViewOp::Kind::transpose;
        op.other = 1 - op.dim;
        break;
    }
    return op;
  }

  ViewRef view(bool writable) {
    ViewRef ref;
    const std::vector<std::size_t> live = live_temporaries();
    ref.temporary = !live.empty() && random_.chance(40);
    if (ref.temporary) {
      ref.index = live[static_cast<std::size_t>(random_.below(live.size()))];
    } else {
      do {
        ref.index = static_cast<std::size_t>(random_.below(case_.arguments.size()));
        if (writable && !any_writable()) return ref;
      } while (writable && case_.arguments[ref.index].access == Access::in);
    }
    for (std::uint64_t i = random_.below(3); i > 0 && !plain(ref).shape.empty(); --i)
      ref.ops.push_back(view_op(plain(ref)));
    return ref;
  }
  [[nodiscard]] bool any_writable() const {
    return std::any_of(case_.arguments.begin(), case_.arguments.end(),
                       [](const ArgumentCase& a) { return a.access != Access::in; });
  }
  [[nodiscard]] bool may_write(const ViewRef& ref) const {
    return ref.temporary || case_.arguments[ref.index].access != Access::in;
  }

  [[nodiscard]] Words words_of(const ViewRef& ref) const {
    Words words;
    const PlainView its = plain(ref);
    for (std::int64_t e = 0; e < its.elements(); ++e)
      words.emplace(ref.temporary ? ref.index + 1 : 0, its.at(e));
    return words;
  }
  static bool meet(const Words& a, const Words& b) {
    return std::any_of(a.begin(), a.end(), [&](const auto& word) { return b.contains(word); });
  }

  TaskArgument fresh(bool fill) {
    TaskArgument argument{.view = {.temporary = true, .index = shapes_.size()},
                          .access = Access::out,
                          .allocates = true,
                          .shape = shape(),
                          .fill = fill,
                          .fill_value = static_cast<std::uint32_t>(random_())};
    shapes_.push_back(argument.shape);
    pending_.push_back(argument.view.index);
    return argument;
  }

  void add_task() {
    Step step;
    step.salt = static_cast<std::uint32_t>(random_());
    step.way = static_cast<Way>(random_.below(5));
    step.blocks = static_cast<std::uint32_t>(random_.chance(50) ? 1 : random_.between(0, 7));
    step.conditional = random_.chance(15);
    // A task that may not run leaves what it should write as it was: so that must be something.
    const bool sure = !step.conditional && step.blocks != 0;
    Words read, written;
    const auto add_output = [&] {
      if (random_.chance(30)) {
        step.arguments.push_back(fresh(!sure || random_.chance(30)));
        return;
      }
      const ViewRef ref = view(true);
      const Words words = words_of(ref);
      if (!may_write(ref) || meet(words, written) || meet(words, read)) return;
      written.insert(words.begin(), words.end());
      step.arguments.push_back(
          {.view = ref, .access = sure && random_.chance(50) ? Access::out : Access::inout});
    };
    if (step.way == Way::barrier) {
      step.blocks = static_cast<std::uint32_t>(random_.between(1, kClusters));
      step.conditional = false;
      step.arguments.push_back(fresh(false));
      step.arguments.push_back(fresh(false));
      shapes_.back() = step.arguments.back().shape = step.arguments.front().shape;
    } else {
      for (std::int64_t i = random_.between(1, 3); i > 0; --i)
        add_output();
    }
    for (std::uint64_t i = random_.below(4); i > 0; --i) {
      const ViewRef ref = view(false);
      if (meet(words_of(ref), written)) continue;
      step.arguments.push_back({.view = ref, .access = Access::in});
    }
    if (step.conditional) {
      step.condition = view(false);
      const Words words = words_of(step.condition);
      step.conditional = !words.empty() && !meet(words, written);
      step.compare = static_cast<Compare>(random_.below(6));
      step.operand = static_cast<std::int64_t>(random_.below(std::uint64_t{1} << 32));
    }
    case_.steps.push_back(std::move(step));
    scopes_.back().insert(scopes_.back().end(), pending_.begin(), pending_.end());
    pending_.clear();
  }

  void add_graph() {
    Step step{.kind = Step::Kind::graph, .salt = static_cast<std::uint32_t>(random_())};
    step.views = {view(true), view(true)};
    if (!may_write(step.views[0]) || !may_write(step.views[1])) return;
    step.variant = static_cast<std::uint32_t>(random_.below(3));
    step.times = static_cast<std::uint32_t>(random_.below(4));
    case_.steps.push_back(step);
    // Again, with the same or other scalars, as it was recorded or not.
    while (random_.chance(50)) {
      if (random_.chance(50)) step.times = static_cast<std::uint32_t>(random_.below(4));
      if (random_.chance(50)) step.salt = static_cast<std::uint32_t>(random_());
      case_.steps.push_back(step);
    }
  }

  void add_value(Step::Kind kind) {
    Step step{.kind = kind, .salt = static_cast<std::uint32_t>(random_())};
    step.views = {view(kind == Step::Kind::write)};
    if (plain(step.views[0]).elements() == 0) return;
    if (kind == Step::Kind::write && !may_write(step.views[0])) return;
    case_.steps.push_back(std::move(step));
  }

  void close_scope() {
    scopes_.pop_back();
    case_.steps.push_back({.kind = Step::Kind::close});
  }

  void add_step() {
    const std::uint64_t what = random_.below(100);
    if (what < 8) {
      scopes_.emplace_back();
      case_.steps.push_back({.kind = Step::Kind::open});
    } else if (what < 14 && scopes_.size() > 1) {
      close_scope();
    } else if (what < 26) {
      add_graph();
    } else if (what < 30 && values_) {
      add_value(Step::Kind::read);
    } else if (what < 33 && values_) {
      add_value(Step::Kind::write);
    } else if (what < 35 && values_) {
      case_.steps.push_back({.kind = Step::Kind::wait});
    } else {
      add_task();
    }
    case_.temporaries = shapes_.size();
  }

  Random random_;
  ChipCase case_;
  bool values_ = false;
  std::vector<std::vector<std::int64_t>> shapes_;  ///< Of the temporaries.
  std::vector<std::vector<std::size_t>> scopes_;   ///< Their temporaries.
  std::vector<std::size_t> pending_;               ///< Of the task under way.
};

}  // namespace

ChipCase generate(std::uint64_t seed) { return Generator(seed).run(); }

// ---- One by one ---------------------------------------------------------------------------------

namespace {

/// Runs steps on plain memory.
class Serial {
 public:
  explicit Serial(const ChipCase& chip_case) : case_(chip_case), memory_(chip_case.memory) {
    temporaries_.resize(chip_case.temporaries);
  }

  std::vector<std::uint32_t> run() {
    for (const Step& step : case_.steps) {
      switch (step.kind) {
        case Step::Kind::task:
          allocate(step);
          if (!step.conditional || holds(step.compare, first(step.condition), step.operand)) {
            run_task(step);
          }
          break;
        case Step::Kind::graph:
          run_graph(step);
          break;
        case Step::Kind::read:
          carried_ = combine(carried_, first(step.views[0]));
          break;
        case Step::Kind::write:
          first(step.views[0]) = combine(step.salt, carried_);
          break;
        default:
          break;
      }
    }
    return std::move(memory_);
  }

 private:
  struct Place {
    std::vector<std::uint32_t>* memory = nullptr;
    PlainView view = {};
    std::uint32_t& operator[](std::int64_t e) const {
      return (*memory)[static_cast<std::size_t>(view.at(e))];
    }
  };
  struct Temporary {
    std::vector<std::int64_t> shape;
    std::vector<std::uint32_t> memory;
  };

  Place place(const ViewRef& ref) {
    Place its;
    if (ref.temporary) {
      its.memory = &temporaries_[ref.index].memory;
      its.view = row_major(0, temporaries_[ref.index].shape);
    } else {
      its.memory = &memory_;
      its.view = case_.arguments[ref.index].view;
    }
    for (const ViewOp& op : ref.ops)
      its.view = its.view.with(op);
    return its;
  }
  std::uint32_t& first(const ViewRef& ref) { return place(ref)[0]; }

  void allocate(const Step& step) {
    for (const TaskArgument& argument : step.arguments) {
      if (!argument.allocates) continue;
      Temporary& made = temporaries_[argument.view.index];
      made.shape = argument.shape;
      made.memory.assign(static_cast<std::size_t>(row_major(0, argument.shape).elements()),
                         argument.fill_value);
    }
  }

  void run_task(const Step& step) {
    if (step.blocks == 0) return;
    std::vector<Place> places;
    for (const TaskArgument& argument : step.arguments)
      places.push_back(place(argument.view));
    const std::uint32_t salt = combine(step.salt, carried_);
    const auto inputs = [&](std::uint32_t h, std::int64_t e) {
      for (std::size_t i = 0; i < places.size(); ++i) {
        const std::int64_t count = places[i].view.elements();
        if (step.arguments[i].access == Access::in && count != 0) {
          h = combine(h, places[i][e % count]);
        }
      }
      return h;
    };
    if (step.way == Way::barrier) {
      const std::int64_t count = places[0].view.elements();
      for (std::int64_t e = 0; e < count; ++e)
        places[0][e] = inputs(combine(salt, static_cast<std::uint32_t>(e)), e);
      for (std::int64_t e = 0; e < count; ++e)
        places[1][e] = combine(places[0][(e + 1) % count], static_cast<std::uint32_t>(e));
      return;
    }
    for (std::size_t o = 0; o < places.size(); ++o) {
      if (step.arguments[o].access == Access::in) continue;
      for (std::int64_t e = 0; e < places[o].view.elements(); ++e) {
        std::uint32_t h =
            combine(combine(salt, static_cast<std::uint32_t>(o)), static_cast<std::uint32_t>(e));
        h = inputs(h, e);
        std::uint32_t& own = places[o][e];
        own = step.arguments[o].access == Access::inout ? combine(h, own) : h;
      }
    }
  }

  /// See graph_function in chip_orchestration.cpp.
  void run_graph(const Step& step) {
    const Place x = place(step.views[0]), y = place(step.views[1]);
    const auto bump = [](const Place& at, std::uint32_t salt) {
      for (std::int64_t e = 0; e < at.view.elements(); ++e) {
        at[e] = combine(combine(combine(salt, 0), static_cast<std::uint32_t>(e)), at[e]);
      }
    };
    const std::uint32_t salt = combine(step.salt, carried_);
    for (std::uint32_t i = 0; i < step.times; ++i) {
      bump(x, salt);
      if (step.variant == 0) continue;
      // By way of a temporary of three elements.
      std::uint32_t between[3];
      for (std::uint32_t e = 0; e < 3; ++e) {
        between[e] = combine(combine(salt, 0), e);
        if (x.view.elements() != 0) between[e] = combine(between[e], x[e % x.view.elements()]);
      }
      for (std::int64_t e = 0; e < y.view.elements(); ++e) {
        const std::uint32_t h = combine(
            combine(combine(step.variant, 0), static_cast<std::uint32_t>(e)), between[e % 3]);
        y[e] = combine(h, y[e]);
      }
    }
    if (step.variant == 2) bump(y, salt);
  }

  const ChipCase& case_;
  std::vector<std::uint32_t> memory_;
  std::vector<Temporary> temporaries_;
  std::uint32_t carried_ = 0;  ///< What was read so far.
};

}  // namespace

std::vector<std::uint32_t> run_serially(const ChipCase& chip_case) {
  return Serial(chip_case).run();
}

// ---- Text ---------------------------------------------------------------------------------------

std::string ChipCase::to_text() const {
  static constexpr const char* kKinds[] = {"task", "open",  "close", "graph",
                                           "read", "write", "wait"};
  static constexpr const char* kWays[] = {"aic", "aiv", "mixed1", "mixed2", "barrier"};
  static constexpr const char* kAccess[] = {"in", "out", "inout"};
  const auto ref_text = [](const ViewRef& ref) {
    return (ref.temporary ? "t" : "a") + std::to_string(ref.index) +
           (ref.ops.empty() ? "" : "/" + std::to_string(ref.ops.size()) + " ops");
  };
  std::string text = "seed " + std::to_string(seed) + "\n";
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    text += "a" + std::to_string(i) + " " + kAccess[static_cast<int>(arguments[i].access)] +
            " at word " + std::to_string(arguments[i].view.base) + ", " +
            std::to_string(arguments[i].view.elements()) + " elements\n";
  }
  for (const Step& step : steps) {
    text += kKinds[static_cast<int>(step.kind)];
    if (step.kind == Step::Kind::task) {
      text += std::string(" ") + kWays[static_cast<int>(step.way)] + " blocks " +
              std::to_string(step.blocks) +
              (step.conditional ? " if " + ref_text(step.condition) : "");
    }
    for (const TaskArgument& argument : step.arguments) {
      text += std::string(" ") + kAccess[static_cast<int>(argument.access)] + "(" +
              (argument.allocates ? "new " : "") + ref_text(argument.view) + ")";
    }
    for (const ViewRef& ref : step.views)
      text += " " + ref_text(ref);
    if (step.kind == Step::Kind::graph) {
      text += " variant " + std::to_string(step.variant) + " times " + std::to_string(step.times);
    }
    text += "\n";
  }
  return text;
}

}  // namespace strata::property::chip_cases
