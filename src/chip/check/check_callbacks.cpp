// What kernels call that were compiled for checking mode, before each load and store.
//
// clang++ makes calls of its address instrumentation (kernel flavour, outlined), g++ those of its
// thread instrumentation: the address instrumentation of g++ leaves out a store whose address was
// loaded from just before. Both are answered here. In a build of Strata that has a sanitizer in it
// these names are the sanitizer's, and checking mode is not there.
//
// Thread safety: all, any thread.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "chip/check/check_task.hpp"

namespace strata::chip {

void check_service_access(CheckedAccess access, const void* data, std::size_t bytes,
                          const void* pc) noexcept {
  CheckedThread* const thread = current_checked_thread;
  if (thread == nullptr || bytes == 0) return;
  // As if the kernel had called us itself.
  const void* const frame[] = {nullptr, pc};
  thread->test(access, reinterpret_cast<std::uintptr_t>(data), bytes, frame);
}

bool can_check() noexcept {
#ifdef STRATA_WITH_SANITIZER
  return false;
#else
  return true;
#endif
}

}  // namespace strata::chip

#ifndef STRATA_WITH_SANITIZER

// The names are the compilers'.
// NOLINTBEGIN(bugprone-reserved-identifier,bugprone-macro-parentheses,readability-identifier-naming)

#define STRATA_CALLBACK extern "C" __attribute__((visibility("default"), used))
#define STRATA_TEST(access, address, bytes)                                                      \
  if (::strata::chip::CheckedThread* const thread = ::strata::chip::current_checked_thread)      \
  thread->test(::strata::chip::CheckedAccess::access, reinterpret_cast<std::uintptr_t>(address), \
               bytes, static_cast<const void* const*>(__builtin_frame_address(0)))

// ---- clang++ ------------------------------------------------------------------------------------

#define STRATA_ASAN(bytes)                                            \
  STRATA_CALLBACK void __asan_load##bytes##_noabort(void* address) {  \
    STRATA_TEST(load, address, bytes);                                \
  }                                                                   \
  STRATA_CALLBACK void __asan_store##bytes##_noabort(void* address) { \
    STRATA_TEST(store, address, bytes);                               \
  }
STRATA_ASAN(1)
STRATA_ASAN(2)
STRATA_ASAN(4)
STRATA_ASAN(8)
STRATA_ASAN(16)
STRATA_CALLBACK void __asan_loadN_noabort(void* address, std::size_t bytes) {
  if (bytes > 0) STRATA_TEST(load, address, bytes);
}
STRATA_CALLBACK void __asan_storeN_noabort(void* address, std::size_t bytes) {
  if (bytes > 0) STRATA_TEST(store, address, bytes);
}
STRATA_CALLBACK void __asan_handle_no_return() {}
STRATA_CALLBACK void __asan_before_dynamic_init(const char*) {}
STRATA_CALLBACK void __asan_after_dynamic_init() {}
STRATA_CALLBACK void __asan_register_globals(void*, std::size_t) {}
STRATA_CALLBACK void __asan_unregister_globals(void*, std::size_t) {}
STRATA_CALLBACK void __asan_alloca_poison(std::uintptr_t, std::size_t) {}
STRATA_CALLBACK void __asan_allocas_unpoison(std::uintptr_t, std::uintptr_t) {}

// ---- g++ ----------------------------------------------------------------------------------------

#define STRATA_TSAN(bytes)                                                                        \
  STRATA_CALLBACK void __tsan_read##bytes(void* address) { STRATA_TEST(load, address, bytes); }   \
  STRATA_CALLBACK void __tsan_write##bytes(void* address) { STRATA_TEST(store, address, bytes); } \
  STRATA_CALLBACK void __tsan_unaligned_read##bytes(void* address) {                              \
    STRATA_TEST(load, address, bytes);                                                            \
  }                                                                                               \
  STRATA_CALLBACK void __tsan_unaligned_write##bytes(void* address) {                             \
    STRATA_TEST(store, address, bytes);                                                           \
  }                                                                                               \
  STRATA_CALLBACK void __tsan_volatile_read##bytes(void* address) {                               \
    STRATA_TEST(load, address, bytes);                                                            \
  }                                                                                               \
  STRATA_CALLBACK void __tsan_volatile_write##bytes(void* address) {                              \
    STRATA_TEST(store, address, bytes);                                                           \
  }
STRATA_TSAN(1)
STRATA_TSAN(2)
STRATA_TSAN(4)
STRATA_TSAN(8)
STRATA_TSAN(16)
STRATA_CALLBACK void __tsan_read_range(void* address, std::size_t bytes) {
  if (bytes > 0) STRATA_TEST(load, address, bytes);
}
STRATA_CALLBACK void __tsan_write_range(void* address, std::size_t bytes) {
  if (bytes > 0) STRATA_TEST(store, address, bytes);
}
STRATA_CALLBACK void __tsan_vptr_update(void* address, void*) {
  STRATA_TEST(store, address, sizeof(void*));
}
STRATA_CALLBACK void __tsan_vptr_read(void* address) { STRATA_TEST(load, address, sizeof(void*)); }
STRATA_CALLBACK void __tsan_func_entry(void*) {}
STRATA_CALLBACK void __tsan_func_exit() {}
STRATA_CALLBACK void __tsan_init() {}
STRATA_CALLBACK void __tsan_atomic_thread_fence(int) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}
STRATA_CALLBACK void __tsan_atomic_signal_fence(int) {
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// g++ calls these in the place of atomic operations. The strictest order is right for all.
#define STRATA_FETCH(bits, operation)                                          \
  STRATA_CALLBACK std::uint##bits##_t __tsan_atomic##bits##_fetch_##operation( \
      std::uint##bits##_t* at, std::uint##bits##_t value, int) {               \
    STRATA_TEST(load, at, sizeof *at);                                         \
    STRATA_TEST(store, at, sizeof *at);                                        \
    return __atomic_fetch_##operation(at, value, __ATOMIC_SEQ_CST);            \
  }
#define STRATA_COMPARE(bits, strength)                                                        \
  STRATA_CALLBACK bool __tsan_atomic##bits##_compare_exchange_##strength(                     \
      std::uint##bits##_t* at, std::uint##bits##_t* expected, std::uint##bits##_t value, int, \
      int) {                                                                                  \
    STRATA_TEST(load, at, sizeof *at);                                                        \
    STRATA_TEST(store, at, sizeof *at);                                                       \
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST,          \
                                       __ATOMIC_SEQ_CST);                                     \
  }
#define STRATA_ATOMIC(bits)                                                                     \
  STRATA_CALLBACK std::uint##bits##_t __tsan_atomic##bits##_load(const std::uint##bits##_t* at, \
                                                                 int) {                         \
    STRATA_TEST(load, at, sizeof *at);                                                          \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                               \
  }                                                                                             \
  STRATA_CALLBACK void __tsan_atomic##bits##_store(std::uint##bits##_t* at,                     \
                                                   std::uint##bits##_t value, int) {            \
    STRATA_TEST(store, at, sizeof *at);                                                         \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                              \
  }                                                                                             \
  STRATA_CALLBACK std::uint##bits##_t __tsan_atomic##bits##_exchange(                           \
      std::uint##bits##_t* at, std::uint##bits##_t value, int) {                                \
    STRATA_TEST(load, at, sizeof *at);                                                          \
    STRATA_TEST(store, at, sizeof *at);                                                         \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                    \
  }                                                                                             \
  STRATA_FETCH(bits, add)                                                                       \
  STRATA_FETCH(bits, sub)                                                                       \
  STRATA_FETCH(bits, and)                                                                       \
  STRATA_FETCH(bits, or)                                                                        \
  STRATA_FETCH(bits, xor)                                                                       \
  STRATA_FETCH(bits, nand)                                                                      \
  STRATA_COMPARE(bits, strong)                                                                  \
  STRATA_COMPARE(bits, weak)
STRATA_ATOMIC(8)
STRATA_ATOMIC(16)
STRATA_ATOMIC(32)
STRATA_ATOMIC(64)

// ---- Functions that kernels call in the place of others -----------------------------------------

STRATA_CALLBACK void* strata_check_memcpy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) {
    STRATA_TEST(load, from, bytes);
    STRATA_TEST(store, to, bytes);
  }
  return std::memcpy(to, from, bytes);
}
STRATA_CALLBACK void* strata_check_memmove(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) {
    STRATA_TEST(load, from, bytes);
    STRATA_TEST(store, to, bytes);
  }
  return std::memmove(to, from, bytes);
}
STRATA_CALLBACK void* strata_check_memset(void* to, int value, std::size_t bytes) {
  if (bytes > 0) STRATA_TEST(store, to, bytes);
  return std::memset(to, value, bytes);
}

// ---- Memory of the kernel's own: for its vectors, strings and exceptions
// -------------------------

namespace {

void* own(void* memory, std::size_t bytes) {
  ::strata::chip::CheckedThread* const thread = ::strata::chip::current_checked_thread;
  if (thread != nullptr && memory != nullptr) thread->own_memory.push_back({memory, bytes});
  return memory;
}

void disown(const void* memory) {
  ::strata::chip::CheckedThread* const thread = ::strata::chip::current_checked_thread;
  if (thread == nullptr) return;
  std::erase_if(thread->own_memory, [memory](const auto& own) { return own.begin == memory; });
}

}  // namespace

STRATA_CALLBACK void* strata_check_malloc(std::size_t bytes) {
  return own(std::malloc(bytes), bytes);
}
STRATA_CALLBACK void* strata_check_calloc(std::size_t count, std::size_t bytes) {
  return own(std::calloc(count, bytes), count * bytes);
}
STRATA_CALLBACK void* strata_check_realloc(void* memory, std::size_t bytes) {
  disown(memory);
  return own(std::realloc(memory, bytes), bytes);
}
STRATA_CALLBACK void strata_check_free(void* memory) {
  disown(memory);
  std::free(memory);
}
// Operators new and delete, by their names for the linker. The library's operator delete looks at
// neither size nor alignment.
#define STRATA_NEW(letter)                                                                  \
  STRATA_CALLBACK void* strata_check__Zn##letter##m(std::size_t bytes) {                    \
    return own(::operator new(bytes), bytes);                                               \
  }                                                                                         \
  STRATA_CALLBACK void* strata_check__Zn##letter##mSt11align_val_t(std::size_t bytes,       \
                                                                   std::size_t alignment) { \
    return own(::operator new (bytes, std::align_val_t{alignment}), bytes);                 \
  }
STRATA_NEW(w)
STRATA_NEW(a)

#define STRATA_DELETE(name, ...)                                                         \
  STRATA_CALLBACK void strata_check__Zd##name(void* memory __VA_OPT__(, ) __VA_ARGS__) { \
    disown(memory);                                                                      \
    ::operator delete(memory);                                                           \
  }
STRATA_DELETE(lPv)
STRATA_DELETE(aPv)
STRATA_DELETE(lPvm, std::size_t)
STRATA_DELETE(aPvm, std::size_t)
STRATA_DELETE(lPvSt11align_val_t, std::size_t)
STRATA_DELETE(aPvSt11align_val_t, std::size_t)
STRATA_DELETE(lPvmSt11align_val_t, std::size_t, std::size_t)
STRATA_DELETE(aPvmSt11align_val_t, std::size_t, std::size_t)

extern "C" void* __cxa_allocate_exception(std::size_t bytes) noexcept;
/// The constructor of what a kernel throws may be part of the kernel. Whoever catches it frees it.
STRATA_CALLBACK void* strata_check___cxa_allocate_exception(std::size_t bytes) {
  return own(__cxa_allocate_exception(bytes), bytes);
}

// NOLINTEND(bugprone-reserved-identifier,bugprone-macro-parentheses,readability-identifier-naming)

#endif  // STRATA_WITH_SANITIZER
