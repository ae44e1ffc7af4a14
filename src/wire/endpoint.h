#pragma once

#include <asio/generic/stream_protocol.hpp>

#include "wire/address.h"

namespace trireme::wire {

// The address for socket calls. The host must be an IP address: names are resolved when the ticket is written.
base::Result<asio::generic::stream_protocol::endpoint> endpoint_of(const Address& address);

}  // namespace trireme::wire
