#include "chip/check/check_task.hpp"

#include <link.h>

#include <algorithm>

#include "chip/check/check_session.hpp"

namespace strata::chip {
namespace {

std::shared_ptr<const CheckedRegions> regions_of(const detail::ArgumentBlock& arguments) {
  CheckedRegions regions;
  regions.reserve(arguments.tensor_count);
  for (std::uint32_t i = 0; i < arguments.tensor_count; ++i)
    regions.emplace_back(arguments.tensors[i]);
  return std::make_shared<const CheckedRegions>(std::move(regions));
}

bool some_overlap(const CheckedRegions& regions) {
  for (std::size_t i = 0; i < regions.size(); ++i) {
    for (std::size_t j = i + 1; j < regions.size(); ++j) {
      if (regions[i].begin() < regions[j].end() && regions[j].begin() < regions[i].end()) {
        return true;
      }
    }
  }
  return false;
}

/// How many of `bytes` bytes at `address` lie in a range that holds the first.
std::uint64_t within(std::uintptr_t address, std::uint64_t bytes, const void* begin,
                     std::size_t size) {
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  if (begin == nullptr || address < first || address - first >= size) return 0;
  return std::min<std::uint64_t>(bytes, first + size - address);
}

}  // namespace

constinit thread_local CheckedThread* current_checked_thread = nullptr;

CheckedTask::CheckedTask(const TaskContext& context, const Launch& launch,
                         const detail::ArgumentBlock& block)
    : id_(context.task()), name_(context.name()), regions_(regions_of(block)) {
  written_.resize(regions_->size());
  has_initial_value_.resize(regions_->size());
  for (std::size_t i = 0; i < regions_->size(); ++i) {
    const CheckedRegion& region = (*regions_)[i];
    if (region.access() != Access::out) continue;
    written_[i] = std::make_unique<WrittenBytes>(region.countable());
    has_initial_value_[i] = i < 32 && (launch.initial_values() >> i & 1U) != 0;
  }
  overlaps_ = some_overlap(*regions_);
}

std::uint64_t CheckedTask::declared(CheckedAccess access, std::uintptr_t address,
                                    std::uint64_t bytes, const CheckedRegion** hit) {
  // Regions that share bytes are asked byte by byte: the next may be another's.
  if (overlaps_) bytes = 1;
  std::uint64_t granted = 0;
  for (std::size_t i = 0; i < regions_->size(); ++i) {
    const CheckedRegion& region = (*regions_)[i];
    const auto run = region.run_at(address);
    if (!run) continue;
    const std::uint64_t count = std::min<std::uint64_t>(bytes, run->end - address);
    const std::uint64_t first = run->index + (address - run->begin);
    if (access == CheckedAccess::load) {
      const std::uint64_t may = load_needs_store(i) ? written_[i]->written(first, count) : count;
      granted = std::max(granted, may);
    } else if (region.access() != Access::in) {
      if (written_[i] != nullptr) written_[i]->add(first, count);
      granted = std::max(granted, count);
    }
    if (granted > 0) *hit = &region;
    if (!overlaps_) break;
  }
  return granted;
}

bool CheckedTask::is_free(CheckedAccess access, const CheckedRegion& region) const noexcept {
  if (overlaps_) return false;
  if (region.access() == Access::inout) return true;
  return access == CheckedAccess::load && region.access() == Access::in;
}

void CheckedThread::test_slowly(CheckedAccess access, std::uintptr_t address, std::uint64_t bytes,
                                Accessor accessor) {
  const std::uint64_t all = bytes;
  while (bytes > 0) {
    const CheckedRegion* region = nullptr;
    Fault fault = Fault::undeclared;
    std::uint64_t good = task->declared(access, address, bytes, &region);
    if (good > 0 && task->is_free(access, *region)) {
      const auto run = region->run_at(address);
      hits[static_cast<std::size_t>(access)] = {run->begin, run->end};
    }
    if (good == 0) good = elsewhere(access, address, bytes, fault);
    if (good == 0) {
      session->note(*this, access, fault, address, all, accessor);
      return;
    }
    address += good;
    bytes -= good;
  }
}

std::uint64_t CheckedThread::elsewhere(CheckedAccess access, std::uintptr_t address,
                                       std::uint64_t bytes, Fault& fault) const {
  fault = fault_of(access, address);
  if (fault != Fault::undeclared) return 0;
  const auto frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  if (address >= frame && address < stack_end) {
    return std::min<std::uint64_t>(bytes, stack_end - address);
  }
  if (access == CheckedAccess::load) {
    if (const std::uint64_t good = handed_over(address, bytes)) return good;
  }
  for (const Memory& memory : own_memory) {
    if (const std::uint64_t good = within(address, bytes, memory.begin, memory.bytes)) return good;
  }
  const auto place = loaded_place(address);
  if (!place) return 0;
  if (access == CheckedAccess::load || place->thread_local_variable) {
    return std::min<std::uint64_t>(bytes, place->end - address);
  }
  fault = place->writable ? Fault::shared_state : Fault::constant;
  return 0;
}

/// What the runtime shows a kernel: it may look at it.
std::uint64_t CheckedThread::handed_over(std::uintptr_t address, std::uint64_t bytes) const {
  const detail::KernelBlock& block = kernel->info();
  const detail::ArgumentBlock& arguments = block.arguments;
  std::uint64_t good = within(address, bytes, kernel, sizeof *kernel);
  good = std::max(good, within(address, bytes, &block, sizeof block));
  good = std::max(good, within(address, bytes, block.services, sizeof *block.services));
  good = std::max(good, within(address, bytes, arguments.tensors,
                               arguments.tensor_count * sizeof *arguments.tensors));
  good = std::max(good, within(address, bytes, arguments.scalars,
                               arguments.scalar_count * sizeof *arguments.scalars));
  for (std::uint32_t i = 0; i < arguments.tensor_count; ++i) {
    const detail::TensorRecord& tensor = arguments.tensors[i];
    good = std::max(good, within(address, bytes, tensor.dims,
                                 2 * std::size_t{tensor.rank} * sizeof *tensor.dims));
  }
  return good;
}

/// What is wrong with an access to bytes that are some argument's, though not in this way.
Fault CheckedThread::fault_of(CheckedAccess access, std::uintptr_t address) const {
  for (const CheckedRegion& region : *task->regions()) {
    if (!region.run_at(address)) continue;
    return access == CheckedAccess::load ? Fault::load_before_store : Fault::store_to_input;
  }
  return Fault::undeclared;
}

std::optional<LoadedPlace> loaded_place(std::uintptr_t address) {
  struct Search {
    std::uintptr_t address;
    std::optional<LoadedPlace> found;
  } search{address, std::nullopt};
  const auto look = [](dl_phdr_info* module, std::size_t, void* data) {
    auto& s = *static_cast<Search*>(data);
    for (int i = 0; i < module->dlpi_phnum; ++i) {
      const ElfW(Phdr)& header = module->dlpi_phdr[i];
      const std::uintptr_t begin = module->dlpi_addr + header.p_vaddr;
      // The calling thread's copy, if it has one.
      const auto own = reinterpret_cast<std::uintptr_t>(module->dlpi_tls_data);
      if (header.p_type == PT_TLS && own != 0 && s.address - own < header.p_memsz) {
        s.found = {.end = own + header.p_memsz, .thread_local_variable = true};
        return 1;
      }
      if (s.address - begin >= header.p_memsz) continue;
      if (header.p_type == PT_LOAD && !s.found) {
        s.found = {.end = begin + header.p_memsz, .writable = (header.p_flags & PF_W) != 0};
      }
      // Written by the loader only: tables with addresses, for instance.
      if (header.p_type == PT_GNU_RELRO) s.found = {.end = begin + header.p_memsz};
    }
    return s.found ? 1 : 0;
  };
  ::dl_iterate_phdr(look, &search);
  return search.found;
}

}  // namespace strata::chip
