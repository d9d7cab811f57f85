// Mending: what ranks have given up in the middle is made as new, so that the domain can be used
// further.
//
// A rank that gives up leaves its words with the gone bit, and the counts of the ranks need not
// agree any more. While no rank is in anything that mend() touches, all of it can be set to its
// first state, zero. Only who starts the ranks knows when that is: the parent, before it sends the
// first member of a group that has the chips of those ranks to itself (node/domain_state.hpp).
//
// Thread safety: no rank uses meanwhile what is mended; see each. What a rank did before its task
// ended happens before, and what it does in its next task happens after, by the mailboxes.
#pragma once

#include <cstdint>

#include "strata/domain_context.hpp"

namespace strata::comm {

/// Makes all channels as new on which some rank has given up; the others stay as they are. Requires
/// that no rank of the domain is in a call. Costs a look at each window if there is nothing to do.
void mend(const DomainContext& domain);

/// The same for the messages between two ranks on a channel: also if one of them was sent and
/// nobody has taken it, since the receiver's part of that task never began. Requires that neither
/// rank is in a call.
void mend_messages(const DomainContext& domain, std::uint32_t channel, std::uint32_t a,
                   std::uint32_t b);

}  // namespace strata::comm
