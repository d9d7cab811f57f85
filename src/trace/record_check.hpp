// Whether a descriptor or a mapping is a process record that this build understands.
//
// Thread safety: free functions; any thread.
#pragma once

#include "trace/record_layout.hpp"

namespace strata::trace {

/// Throws Error if the file is too small to be mapped as a record, or may become so.
void require_record_size(int fd);
/// Throws Error if the memory is no record of this version.
void require_record(const RecordLayout& layout);

}  // namespace strata::trace
