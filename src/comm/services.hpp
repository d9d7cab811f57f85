// The entries behind DomainContext::services.
//
// Thread safety: as Communicator says.
#pragma once

#include <string>
#include <string_view>

#include "strata/domain_context.hpp"

namespace strata::comm {

void run_collective(const DomainContext& domain, const detail::CommWaits& waits,
                    const detail::CollectiveCall& what);
void run_message(const DomainContext& domain, const detail::CommWaits& waits,
                 const detail::MessageCall& what);
void wait_for_signal(const DomainContext& domain, const detail::CommWaits& waits, Signal* signal,
                     Compare compare, std::uint32_t value);

/// "rank 1 of domain 'tp' waits for the signal at byte 64 of slice 'flags' to be >= 1, and it is
/// 0"; "" if the rank waits for none. For any process that has the windows, at any time.
[[nodiscard]] std::string describe_signal_wait(const DomainContext& domain);
/// Which rank has sent fewer notifications than the others; "" if all have sent as many.
[[nodiscard]] std::string describe_notifications(const DomainContext& domain);

/// All of them, in this process.
[[nodiscard]] const detail::CommServices& services() noexcept;

}  // namespace strata::comm
