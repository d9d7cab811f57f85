// Random chip programs on a chip: the orchestration that submits them, and their kernels.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "chip_case.hpp"

namespace strata::property::chip_cases {

const ChipCase* current = nullptr;

// ---- Kernels ------------------------------------------------------------------------------------

namespace {

std::uint32_t& element(const KernelTensor& tensor, std::int64_t e) {
  std::int64_t word = 0;
  for (int d = tensor.rank() - 1; d >= 0; --d) {
    word += e % tensor.extent(d) * tensor.stride(d);
    e /= tensor.extent(d);
  }
  return tensor.data_as<std::uint32_t>()[word];
}

std::uint32_t with_inputs(const Kernel& kernel, std::uint32_t h, std::int64_t e) {
  for (std::size_t i = 0; i < kernel.tensor_count(); ++i) {
    const KernelTensor tensor = kernel.tensor(i);
    if (tensor.access() == Access::in && tensor.elements() != 0) {
      h = combine(h, element(tensor, e % tensor.elements()));
    }
  }
  return h;
}

std::uint32_t mixed_inputs(const Kernel& kernel, std::size_t output, std::int64_t e) {
  const std::uint32_t h =
      combine(combine(kernel.scalar<std::uint32_t>(0), static_cast<std::uint32_t>(output)),
              static_cast<std::uint32_t>(e));
  return with_inputs(kernel, h, e);
}

void store(const KernelTensor& output, std::int64_t e, std::uint32_t h) {
  std::uint32_t& own = element(output, e);
  own = output.access() == Access::inout ? combine(h, own) : h;
}

/// Calls visit(output, its index, element) for the block's share of all outputs.
template <class Visit>
void each_element(const Kernel& kernel, Visit&& visit) {
  for (std::size_t o = 0; o < kernel.tensor_count(); ++o) {
    const KernelTensor output = kernel.tensor(o);
    if (output.access() == Access::in) continue;
    for (std::int64_t e = kernel.block(); e < output.elements(); e += kernel.blocks())
      visit(output, o, e);
  }
}

/// All of it on one core.
void mix(const Kernel& kernel) {
  each_element(kernel, [&](const KernelTensor& output, std::size_t o, std::int64_t e) {
    store(output, e, mixed_inputs(kernel, o, e));
  });
}

/// Which AIV stores an element.
unsigned storer(const Kernel& kernel, std::int64_t e, unsigned aivs) {
  return static_cast<unsigned>(e / kernel.blocks() % aivs);
}

/// The AIC mixes and pushes, the AIVs store and raise a flag when they are done.
void cube(const Kernel& kernel) {
  const unsigned aivs = kernel.info().lanes - 1U;
  each_element(kernel, [&](const KernelTensor&, std::size_t o, std::int64_t e) {
    const std::array<std::uint32_t, 1> message{mixed_inputs(kernel, o, e)};
    kernel.push(storer(kernel, e, aivs), std::span(message));
  });
  for (unsigned v = 0; v < aivs; ++v)
    kernel.wait_flag(v);
}

void vector(const Kernel& kernel) {
  const unsigned aivs = kernel.info().lanes - 1U;
  const unsigned own = kernel.vector_lane();
  each_element(kernel, [&](const KernelTensor& output, std::size_t, std::int64_t e) {
    if (storer(kernel, e, aivs) != own) return;
    std::array<std::uint32_t, 1> message{};
    kernel.pop(own, std::span(message));
    store(output, e, message[0]);
  });
  kernel.set_flag(ClusterLane::aic, own);
}

/// Writes tensor 0, meets all other blocks, and writes tensor 1 from what they wrote.
void barrier(const Kernel& kernel) {
  const KernelTensor first = kernel.tensor(0), second = kernel.tensor(1);
  const std::int64_t count = first.elements();
  for (std::int64_t e = kernel.block(); e < count; e += kernel.blocks()) {
    element(first, e) = with_inputs(
        kernel, combine(kernel.scalar<std::uint32_t>(0), static_cast<std::uint32_t>(e)), e);
  }
  kernel.barrier();
  for (std::int64_t e = kernel.block(); e < count; e += kernel.blocks())
    element(second, e) = combine(element(first, (e + 1) % count), static_cast<std::uint32_t>(e));
}

}  // namespace

std::vector<chip::KernelEntry> kernels() {
  return {{"mix", CoreType::aiv, mix},
          {"mix_on_aic", CoreType::aic, mix},
          {"cube", CoreType::aic, cube},
          {"vector", CoreType::aiv, vector},
          {"barrier", CoreType::aiv, barrier}};
}

// ---- The orchestration --------------------------------------------------------------------------

namespace {

/// What a graph() of a case submits; its own way in Serial::run_graph.
void graph_function(ChipOrchestration& chip, const GraphArguments& arguments,
                    std::uint32_t variant) {
  const Tensor &x = arguments.tensor(0), &y = arguments.tensor(1);
  const Launch mix = chip.aiv("mix");
  for (std::uint32_t i = 0; i < arguments.value<std::uint32_t>(1); ++i) {
    chip.submit(mix, inout(x), arguments.scalar(0));
    if (variant == 0) continue;
    Tensor between(DType::uint32, {3});
    chip.submit(mix, out(between), in(x), arguments.scalar(0));
    chip.submit(mix.blocks(2), inout(y), in(between), scalar(variant));
  }
  if (variant == 2) chip.submit(chip.aic("mix_on_aic"), inout(y), arguments.scalar(0));
}

Tensor apply(const Tensor& tensor, const ViewOp& op) {
  switch (op.kind) {
    case ViewOp::Kind::slice:
      return tensor.slice(op.dim, op.start, op.stop, op.step);
    case ViewOp::Kind::tile:
      return tensor.tile(op.tile_start, op.tile_size);
    case ViewOp::Kind::select:
      return tensor.select(op.dim, op.start);
    case ViewOp::Kind::transpose:
      return tensor.transpose(op.dim, op.other);
  }
  return tensor;
}

class Submitter {
 public:
  Submitter(ChipOrchestration& chip, const ChipCase& chip_case)
      : chip_(chip), case_(chip_case), temporaries_(chip_case.temporaries) {}

  void run() {
    for (const Step& step : case_.steps) {
      switch (step.kind) {
        case Step::Kind::task:
          submit(step);
          break;
        case Step::Kind::open:
          scopes_.push_back(std::make_unique<Scope>(chip_.scope()));
          break;
        case Step::Kind::close:
          scopes_.pop_back();
          break;
        case Step::Kind::graph:
          last_ = chip_.graph(graph_function, {view(step.views[0]), view(step.views[1])},
                              {scalar(salt(step)), scalar(step.times)}, step.variant);
          break;
        case Step::Kind::read:
          carried_ = combine(carried_, chip_.read<std::uint32_t>(view(step.views[0])));
          break;
        case Step::Kind::write:
          chip_.write(view(step.views[0]), {}, salt(step));
          break;
        case Step::Kind::wait:
          chip_.wait(last_);
          break;
      }
    }
  }

 private:
  [[nodiscard]] std::uint32_t salt(const Step& step) const { return combine(step.salt, carried_); }
  [[nodiscard]] Tensor view(const ViewRef& ref) const {
    Tensor tensor = ref.temporary ? temporaries_[ref.index] : chip_.tensor(ref.index);
    for (const ViewOp& op : ref.ops)
      tensor = apply(tensor, op);
    return tensor;
  }

  [[nodiscard]] Launch launch(const Step& step) const {
    switch (step.way) {
      case Way::aic:
        return chip_.aic("mix_on_aic");
      case Way::aiv:
        return chip_.aiv("mix");
      case Way::mixed1:
        return chip_.mixed(chip_.kernel("cube"), chip_.kernel("vector"));
      case Way::mixed2:
        return chip_.mixed(chip_.kernel("cube"), chip_.kernel("vector"), chip_.kernel("vector"));
      case Way::barrier:
        return chip_.aiv("barrier").together();
    }
    return chip_.aiv("mix");
  }

  void submit(const Step& step) {
    std::vector<Tensor> tensors;
    tensors.reserve(step.arguments.size() + 1);  // Arguments point into it.
    std::vector<TensorArg> args;
    for (const TaskArgument& argument : step.arguments) {
      if (argument.allocates) {
        Tensor& fresh = temporaries_[argument.view.index];
        fresh = Tensor(DType::uint32, argument.shape);
        args.push_back(out(fresh, argument.fill ? &argument.fill_value : nullptr));
        continue;
      }
      const Tensor& tensor = tensors.emplace_back(view(argument.view));
      args.push_back({.tensor = &tensor, .access = argument.access});
    }
    Launch body = launch(step).blocks(step.blocks);
    if (step.conditional) {
      args.push_back(in(tensors.emplace_back(view(step.condition))));
      body = body.only_if(step.compare, step.operand);
    }
    const Scalar scalars[] = {scalar(salt(step))};
    TaskSpec spec;
    spec.body = Body(body);
    spec.tensors = args;
    spec.scalars = scalars;
    last_ = chip_.submit_task(spec);
  }

  ChipOrchestration& chip_;
  const ChipCase& case_;
  std::vector<Tensor> temporaries_;
  std::vector<std::unique_ptr<Scope>> scopes_;
  std::uint32_t carried_ = 0;
  TaskId last_;
};

}  // namespace

void orchestrate(ChipOrchestration& chip) { Submitter(chip, *current).run(); }

}  // namespace strata::property::chip_cases
