// The process record of the user's own process, at the root of a tree: how `strata ps` finds it,
// and where its threads record their events.
//
// Thread safety: any thread.
#pragma once

#include <string>

namespace strata::node {

/// Makes one, the first time, for the rest of the process's life. In a worker process there is one
/// already, which its parent made.
void make_own_record(const std::string& path);

}  // namespace strata::node
