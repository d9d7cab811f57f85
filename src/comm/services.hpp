// The entries behind DomainContext::services.
//
// Thread safety: as Communicator says.
#pragma once

#include <string_view>

#include "strata/domain_context.hpp"

namespace strata::comm {

void run_collective(const DomainContext& domain, const detail::CommWaits& waits,
                    const detail::CollectiveCall& what);
void run_message(const DomainContext& domain, const detail::CommWaits& waits,
                 const detail::MessageCall& what);
void wait_for_signal(const DomainContext& domain, const detail::CommWaits& waits, Signal* signal,
                     Compare compare, std::uint32_t value);

/// All of them, in this process.
[[nodiscard]] const detail::CommServices& services() noexcept;

}  // namespace strata::comm
