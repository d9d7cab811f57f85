#include "generator.hpp"

#include <algorithm>
#include <map>

#include "generator_profile.hpp"

namespace strata::property {
namespace {

using test::Random;

/// What is known of a storage that steps may use.
struct Storage {
  Layout layout;
  std::int64_t bytes = 0;
  std::vector<View> used;
};

/// A list of steps that is being made: the program's, or one recording's.
struct Sheet {
  std::vector<Step>* steps = nullptr;
  bool recording = false;
  int next_storage = kFirstAllocated;
  std::map<int, Storage> storages;                      // all that were ever made, by id
  std::map<int, std::vector<int>> usable;               // by run
  std::map<int, std::vector<std::vector<int>>> scopes;  // by run: storages of each open scope
  std::map<int, std::vector<bool>> manual;              // by run: of each open scope
  std::vector<int> submitted;
  std::vector<int> kept;
};

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) {
    program_.seed = seed;
    profile_ = random_profile(random_, program_);
  }

  Program run() {
    Sheet sheet;
    make_buffers(sheet);
    const int recordings = profile_.replay > 0 ? static_cast<int>(random_.between(1, 2)) : 0;
    for (int r = 0; r < recordings; ++r)
      make_recording(sheet);
    sheet.steps = &program_.steps;
    int run = 0;
    while (static_cast<int>(program_.steps.size()) < profile_.steps) {
      if (random_.chance(25)) run = static_cast<int>(random_.below(program_.runs.size()));
      if (random_.chance(profile_.motif)) {
        motif(sheet, run);
      } else {
        single(sheet, run);
      }
    }
    if (profile_.cancel > 0) insert_cancel();
    normalize(program_);
    return std::move(program_);
  }

 private:
  void make_buffers(Sheet& sheet) {
    const auto count = random_.between(1, 3);
    for (int b = 0; b < count; ++b) {
      const std::int64_t most = profile_.steps > 80 ? 2048 : random_.chance(30) ? 24 : 320;
      Storage storage{.layout = random_layout(random_, most), .bytes = 0, .used = {}};
      storage.bytes =
          bytes_of(whole(b, storage.layout.dtype, storage.layout.shape)) + random_.between(0, 4);
      program_.buffers.push_back(static_cast<int>(storage.bytes));
      sheet.storages[b] = std::move(storage);
      for (int r = 0; r < static_cast<int>(program_.runs.size()); ++r)
        sheet.usable[r].push_back(b);
    }
  }

  // ---- Steps
  // -------------------------------------------------------------------------------------

  Step& add(Sheet& sheet, int run, Op op) {
    Step& step = sheet.steps->emplace_back();
    step.id = next_id_++;
    step.run = run;
    step.op = op;
    if (!sheet.recording && random_.chance(profile_.pause)) step.pause = random_delay();
    return step;
  }

  int random_delay() {
    const std::uint64_t sort = random_.below(100);
    if (sort < 80) return static_cast<int>(random_.between(1, 8));
    return static_cast<int>(random_.between(100, 200));
  }

  void single(Sheet& sheet, int run) {
    if (random_.chance(profile_.allocate)) return scope_or_allocate(sheet, run);
    if (random_.chance(profile_.group)) return group(sheet, run);
    if (!sheet.recording) {
      if (random_.chance(profile_.host)) return host(sheet, run);
      if (random_.chance(profile_.replay)) return replay(sheet, run);
      if (random_.chance(profile_.misuse)) {
        add(sheet, run, Op::misuse).other = static_cast<int>(random_.below(7));
        return;
      }
    }
    Work work = random_work(sheet, run, static_cast<int>(random_.between(0, 4)));
    if (random_.chance(profile_.allocate / 2) && !in_manual(sheet, run)) {
      work.args.push_back(new_storage(sheet, run, true));
    }
    task(sheet, run, std::move(work));
  }

  Step& task(Sheet& sheet, int run, Work work) {
    Step& step = add(sheet, run, Op::task);
    step.works.push_back(std::move(work));
    place(step);
    add_after(sheet, step);
    sheet.submitted.push_back(step.id);
    return step;
  }

  void place(Step& step) {
    step.exact = random_.chance(profile_.exact);
    const int places = step.exact ? lane_count(program_) : static_cast<int>(program_.kinds.size());
    step.target = static_cast<int>(random_.below(static_cast<std::uint64_t>(places)));
    step.unordered = step.exact && random_.chance(20);
    if (random_.chance(profile_.priority)) step.priority = static_cast<int>(random_.between(-2, 2));
  }

  void add_after(Sheet& sheet, Step& step) {
    while (!sheet.submitted.empty() && random_.chance(profile_.after)) {
      // Mostly one of the last few, to make chains.
      const std::size_t count = sheet.submitted.size();
      const std::size_t back = random_.chance(70) ? std::min<std::size_t>(count, 6) : count;
      step.after.push_back(sheet.submitted[count - 1 - random_.below(back)]);
    }
  }

  void group(Sheet& sheet, int run) {
    std::vector<int> lanes;
    for (int lane = 0; lane < lane_count(program_); ++lane) {
      const KindPlan& kind = program_.kinds[static_cast<std::size_t>(kind_of_lane(program_, lane))];
      if (!kind.completes_inline) lanes.push_back(lane);
    }
    if (lanes.empty()) return;
    random_.shuffle(lanes);
    const auto size = static_cast<std::size_t>(
        random_.between(1, std::min<std::int64_t>(4, static_cast<std::int64_t>(lanes.size()))));
    Step& step = add(sheet, run, Op::group);
    for (std::size_t m = 0; m < size; ++m) {
      Work member = random_work(sheet, run, static_cast<int>(random_.between(0, 2)));
      member.has_body = true;
      member.lane = lanes[m];
      step.works.push_back(std::move(member));
    }
    add_after(sheet, step);
    sheet.submitted.push_back(step.id);
  }

  void host(Sheet& sheet, int run) {
    if (program_.held) return;
    if (!sheet.submitted.empty() && random_.chance(10)) {
      const int other = random_.pick(sheet.submitted);
      add(sheet, run, Op::wait_task).other = other;
      return;
    }
    static constexpr Op kOps[] = {Op::wait_tensor, Op::read, Op::write, Op::overwrite};
    Op op = kOps[random_.below(std::size(kOps))];
    const bool writes = op == Op::write || op == Op::overwrite;
    if (writes && program_.runs[static_cast<std::size_t>(run)].raw_only) op = Op::wait_tensor;
    const int storage = random_.pick(sheet.usable[run]);
    const Storage& info = sheet.storages[storage];
    Step& step = add(sheet, run, op);
    step.salt = random_();
    if (op == Op::read || op == Op::write) {
      static constexpr DType kTypes[] = {DType::uint8, DType::uint16, DType::uint32, DType::uint64};
      DType dtype = kTypes[random_.below(std::size(kTypes))];
      if (static_cast<std::int64_t>(size_of(dtype)) > info.bytes) dtype = DType::uint8;
      const std::optional<View> view =
          moved(random_, whole(storage, dtype, {1}), storage, info.bytes);
      step.view = *view;
    } else {
      step.view = random_view(random_, storage, info.layout, info.bytes);
    }
  }

  // ---- Arguments
  // ---------------------------------------------------------------------------------

  Work random_work(Sheet& sheet, int run, int args) {
    Work work = plain_work();
    for (int a = 0; a < args; ++a)
      work.args.push_back(random_arg(sheet, run));
    return work;
  }

  Work plain_work() {
    Work work;
    work.salt = random_();
    if (random_.chance(profile_.delay)) work.delay = random_delay();
    if (random_.chance(profile_.no_body)) {
      work.has_body = false;
    } else if (random_.chance(profile_.fault)) {
      work.fault = random_.chance(50) ? Fault::before_writing : Fault::after_writing;
    }
    return work;
  }

  Arg random_arg(Sheet& sheet, int run) {
    const int storage = random_.pick(sheet.usable[run]);
    Storage& info = sheet.storages[storage];
    View view;
    if (!info.used.empty() && random_.chance(profile_.reuse)) {
      view = random_.pick(info.used);
    } else if (storage >= kFirstParameter && storage < kFirstLocal) {
      view = random_part(random_, info.used.front());
    } else {
      view = random_view(random_, storage, info.layout, info.bytes);
    }
    if (info.used.size() < 12) info.used.push_back(view);
    return access(std::move(view));
  }

  Arg access(View view) {
    Arg arg;
    arg.view = std::move(view);
    const std::uint64_t sort = random_.below(100);
    arg.access = sort < 50 ? Access::in : sort < 75 ? Access::out : Access::inout;
    if (random_.chance(profile_.weak)) {
      const Tracking weak = random_.chance(60) ? Tracking::creator_only : Tracking::no_dep;
      (random_.chance(50) ? arg.tracking : arg.tensor_tracking) = weak;
    }
    return arg;
  }

  // ---- Scopes and storages
  // -----------------------------------------------------------------------

  void scope_or_allocate(Sheet& sheet, int run) {
    auto& scopes = sheet.scopes[run];
    const std::uint64_t sort = random_.below(100);
    if (sort < 35 && scopes.size() < 4) return open_scope(sheet, run);
    if (sort < 60 && !scopes.empty()) return close_scope(sheet, run);
    if (sort < 70 && !sheet.recording) {
      const Arg arg = new_storage(sheet, run, false);
      add(sheet, run, Op::allocate).view = arg.view;
      return;
    }
    if (sort < 75 && !sheet.recording) return keep(sheet, run);
    if (in_manual(sheet, run)) return;
    Work work = random_work(sheet, run, static_cast<int>(random_.between(0, 2)));
    work.args.push_back(new_storage(sheet, run, true));
    task(sheet, run, std::move(work));
  }

  void open_scope(Sheet& sheet, int run) {
    const bool manual = random_.chance(profile_.manual);
    add(sheet, run, Op::open_scope).manual = manual;
    sheet.scopes[run].emplace_back();
    sheet.manual[run].push_back(manual);
  }

  void close_scope(Sheet& sheet, int run) {
    add(sheet, run, Op::close_scope);
    for (const int storage : sheet.scopes[run].back()) {
      if (std::count(sheet.kept.begin(), sheet.kept.end(), storage) == 0) {
        std::erase(sheet.usable[run], storage);
      }
    }
    sheet.scopes[run].pop_back();
    sheet.manual[run].pop_back();
  }

  bool in_manual(Sheet& sheet, int run) {
    const auto& manual = sheet.manual[run];
    return std::find(manual.begin(), manual.end(), true) != manual.end();
  }

  /// A storage and the argument that allocates it.
  Arg new_storage(Sheet& sheet, int run, bool by_task) {
    const int id = sheet.next_storage++;
    Storage storage{
        .layout = random_layout(random_, random_.chance(80) ? 96 : 400), .bytes = 0, .used = {}};
    const View view = whole(id, storage.layout.dtype, storage.layout.shape);
    storage.bytes = bytes_of(view);
    sheet.storages[id] = std::move(storage);
    sheet.usable[run].push_back(id);
    if (!sheet.scopes[run].empty()) sheet.scopes[run].back().push_back(id);
    Arg arg;
    arg.view = view;
    arg.access = Access::out;
    arg.allocates = by_task;
    arg.filled = profile_.filled || random_.chance(30);
    return arg;
  }

  void keep(Sheet& sheet, int run) {
    std::vector<int> heap;
    for (const int id : sheet.usable[run]) {
      const bool again = std::count(sheet.kept.begin(), sheet.kept.end(), id) != 0;
      if (id >= kFirstAllocated && !again) heap.push_back(id);
    }
    if (heap.empty()) return;
    const int storage = random_.pick(heap);
    add(sheet, run, Op::keep).view.storage = storage;
    sheet.kept.push_back(storage);
    for (auto& [other, usable] : sheet.usable) {
      if (other != run) usable.push_back(storage);
    }
  }

  // ---- Motifs
  // ------------------------------------------------------------------------------------

  void motif(Sheet& sheet, int run) {
    switch (random_.below(5)) {
      case 0:
        return chain(sheet, run);
      case 1:
        return fan(sheet, run);
      case 2:
        return tiles(sheet, run);
      case 3:
        return halves(sheet, run);
      default:
        if (profile_.allocate > 0) scope_loop(sheet, run);
        return;
    }
  }

  View some_view(Sheet& sheet, int run) { return random_arg(sheet, run).view; }

  void task_on(Sheet& sheet, int run, const View& view, Access how) {
    Work work = plain_work();
    work.args.push_back(access(view));
    work.args.back().access = how;
    if (random_.chance(20)) work.args.push_back(random_arg(sheet, run));
    task(sheet, run, std::move(work));
  }

  void chain(Sheet& sheet, int run) {
    const View view = some_view(sheet, run);
    for (auto i = random_.between(2, 6); i > 0; --i)
      task_on(sheet, run, view, Access::inout);
  }

  /// A writer, readers of the same bytes, another writer.
  void fan(Sheet& sheet, int run) {
    const View view = some_view(sheet, run);
    task_on(sheet, run, view, Access::out);
    const auto readers = random_.chance(15) ? random_.between(10, 40) : random_.between(2, 6);
    for (auto i = readers; i > 0; --i) {
      task_on(sheet, run, random_.chance(80) ? view : random_part(random_, view), Access::in);
    }
    task_on(sheet, run, random_.chance(70) ? view : random_part(random_, view),
            random_.chance(50) ? Access::out : Access::inout);
  }

  /// Each tile of a matrix by a task of its own, then parts of it by others.
  void tiles(Sheet& sheet, int run) {
    const int storage = random_.pick(sheet.usable[run]);
    const Storage& info = sheet.storages[storage];
    if (info.layout.shape.empty()) return;
    const View all = whole(storage, info.layout.dtype, info.layout.shape);
    std::vector<View> parts{all};
    const std::size_t most = profile_.steps > 80 ? 64 : 12;
    for (std::size_t d = 0; d < all.shape.size() && parts.size() < most; ++d) {
      const std::int64_t step = random_.between(1, std::max<std::int64_t>(1, all.shape[d] / 2));
      std::vector<View> finer;
      for (const View& part : parts) {
        for (std::int64_t at = 0; at < all.shape[d]; at += step) {
          View tile = part;
          tile.offset += at * tile.strides[d] * static_cast<std::int64_t>(size_of(tile.dtype));
          tile.shape[d] = std::min(step, all.shape[d] - at);
          finer.push_back(std::move(tile));
        }
      }
      if (finer.size() > most) break;
      parts = std::move(finer);
    }
    random_.shuffle(parts);
    for (const View& tile : parts) {
      task_on(sheet, run, tile, random_.chance(60) ? Access::out : Access::inout);
    }
    task_on(sheet, run, random_part(random_, all), random_.chance(60) ? Access::in : Access::out);
  }

  /// Readers of a range; writers of its parts, one after the other; the whole again.
  void halves(Sheet& sheet, int run) {
    const View view = some_view(sheet, run);
    for (auto i = random_.between(1, 3); i > 0; --i)
      task_on(sheet, run, view, Access::in);
    task_on(sheet, run, random_part(random_, view), Access::out);
    if (random_.chance(50)) task_on(sheet, run, random_part(random_, view), Access::in);
    task_on(sheet, run, random_part(random_, view), Access::out);
    task_on(sheet, run, view, random_.chance(50) ? Access::inout : Access::in);
  }

  /// Scopes one after the other, each with a storage that is made, used and read.
  void scope_loop(Sheet& sheet, int run) {
    if (in_manual(sheet, run)) return;
    const View result = some_view(sheet, run);
    for (auto i = random_.between(3, 8); i > 0; --i) {
      if (sheet.scopes[run].size() >= 5) return;
      open_scope(sheet, run);
      if (!in_manual(sheet, run)) {
        Work make = plain_work();
        make.args.push_back(new_storage(sheet, run, true));
        const View made = make.args.back().view;
        task(sheet, run, std::move(make));
        if (random_.chance(50)) {
          task_on(sheet, run, random_part(random_, made), access(made).access);
        }
        Work use = plain_work();
        use.args.push_back(access(made));
        use.args.back().access = Access::in;
        use.args.push_back(access(random_.chance(50) ? result : random_part(random_, result)));
        use.args.back().access = Access::inout;
        task(sheet, run, std::move(use));
      }
      close_scope(sheet, run);
    }
  }

  // ---- Recordings
  // --------------------------------------------------------------------------------

  void make_recording(const Sheet& outer) {
    RecordingPlan plan;
    Sheet sheet;
    sheet.steps = &plan.steps;
    sheet.recording = true;
    sheet.next_storage = kFirstLocal;
    const auto count = random_.between(1, 3);
    for (int p = 0; p < count; ++p) {
      const int buffer = static_cast<int>(random_.below(program_.buffers.size()));
      const Storage& from = outer.storages.at(buffer);
      View example = random_view(random_, buffer, from.layout, from.bytes);
      if (random_.chance(50) && !plan.parameters.empty()) {
        // Often the same shape, so that one may be bound where the other is.
        const View& earlier = random_.pick(plan.parameters);
        if (const auto view = moved(random_, earlier, buffer, from.bytes)) example = *view;
      }
      const int id = kFirstParameter + p;
      View parameter = example;
      parameter.storage = id;
      parameter.offset = 0;
      plan.parameters.push_back(std::move(example));
      sheet.storages[id].used.push_back(parameter);
      sheet.usable[0].push_back(id);
    }
    const auto steps = static_cast<std::size_t>(random_.between(2, 9));
    while (plan.steps.size() < steps)
      single(sheet, 0);
    program_.recordings.push_back(std::move(plan));
  }

  void replay(Sheet& sheet, int run) {
    if (program_.recordings.empty() || in_manual(sheet, run)) return;
    const std::size_t r = random_.below(program_.recordings.size());
    const RecordingPlan& plan = program_.recordings[r];
    std::vector<View> bindings;
    const bool as_recorded = random_.chance(30);
    for (const View& example : plan.parameters) {
      View bound = example;
      if (!as_recorded && random_.chance(75)) {
        const int storage = random_.pick(sheet.usable[run]);
        if (const auto view = moved(random_, example, storage, sheet.storages[storage].bytes)) {
          bound = *view;
        }
      }
      bindings.push_back(std::move(bound));
    }
    Step& step = add(sheet, run, Op::replay);
    step.other = static_cast<int>(r);
    step.bindings = std::move(bindings);
    step.salt = random_();
  }

  void insert_cancel() {
    Step step;
    step.id = next_id_++;
    step.op = Op::cancel;
    step.run = static_cast<int>(random_.below(program_.runs.size()));
    step.other =
        random_.chance(30) ? step.run : static_cast<int>(random_.below(program_.runs.size()));
    const auto half = static_cast<std::int64_t>(program_.steps.size()) / 2;
    program_.steps.insert(program_.steps.begin() + random_.between(half, 2 * half), step);
  }

  Random random_;
  Program program_;
  Profile profile_;
  int next_id_ = 1;
};

}  // namespace

Program generate(std::uint64_t seed) { return Generator(seed).run(); }

}  // namespace strata::property
