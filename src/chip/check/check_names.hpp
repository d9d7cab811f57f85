// Functions that a kernel built for checking mode calls in the place of others: those touch memory
// on its behalf, or give it memory of its own (check_callbacks.cpp).
//
// Thread safety: constants.
#pragma once

#include <array>
#include <string_view>

namespace strata::chip {

/// Each with this in front of its name.
inline constexpr std::string_view kCheckedPrefix = "strata_check_";
inline constexpr std::array<std::string_view, 20> kCheckedNames = {
    "memcpy",
    "memmove",
    "memset",
    "malloc",
    "calloc",
    "realloc",
    "free",
    "_Znwm",
    "_Znam",
    "_ZnwmSt11align_val_t",
    "_ZnamSt11align_val_t",
    "_ZdlPv",
    "_ZdaPv",
    "_ZdlPvm",
    "_ZdaPvm",
    "_ZdlPvSt11align_val_t",
    "_ZdaPvSt11align_val_t",
    "_ZdlPvmSt11align_val_t",
    "_ZdaPvmSt11align_val_t",
    "__cxa_allocate_exception",
};

/// For the compiler: templates of the standard library (std::string) become part of the kernel,
/// rather than stay in a library that can't be looked into.
inline constexpr std::string_view kCheckedLibraryMacro = "_GLIBCXX_EXTERN_TEMPLATE=0";

}  // namespace strata::chip
