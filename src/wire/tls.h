#pragma once

#include <openssl/types.h>

#include <asio/error_code.hpp>
#include <asio/ssl/context.hpp>
#include <string>

#include "base/result.h"

// Mutual TLS 1.3 without certificates: both sides prove a pre-shared key in the handshake, with an ephemeral key
// exchange (psk_dhe_ke), so that recorded traffic stays secret if the key is found later. The key of each peer is
// derived from the run's secret (secret.h). A handshake costs the controller a third of one in which both sides have a
// certificate: bench/scale/README.md.

namespace trireme::wire {

// Accepts peers that have a key derived from this secret, and no others.
base::Result<asio::ssl::context> server_tls(const std::string& secret);
// `key` is the key with this name; it only accepts a controller that has the key as well.
base::Result<asio::ssl::context> client_tls(const std::string& key_name, const std::string& key);

// Whether the peer has proved a key, after a handshake.
bool proved(SSL* tls);
// Why a handshake failed, in our terms. The code is kDenied unless the connection failed.
base::Error handshake_error(SSL* tls, const asio::error_code& failure);

}  // namespace trireme::wire
