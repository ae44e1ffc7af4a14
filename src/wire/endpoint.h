#pragma once

#include <asio/generic/stream_protocol.hpp>

#include "wire/address.h"

namespace trireme::wire {

// The address as the socket calls take it. A host must be an IP address: names are resolved by whoever writes the
// ticket.
base::Result<asio::generic::stream_protocol::endpoint> endpoint_of(const Address& address);

}  // namespace trireme::wire
