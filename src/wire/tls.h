#pragma once

#include <asio/ssl/context.hpp>
#include <string>

#include "base/result.h"

// TLS without a certificate authority: the controller creates a key for the run, and workers receive the certificate's
// fingerprint with their ticket, so they only connect to that controller.

namespace trireme::wire {

struct Certificate {
  std::string key_pem;
  std::string certificate_pem;
  std::string fingerprint;  // SHA-256 of the DER form, hex
};

base::Result<Certificate> make_certificate();

base::Result<asio::ssl::context> server_tls(const Certificate& certificate);
// Accepts exactly the certificate with this fingerprint.
asio::ssl::context client_tls(std::string fingerprint);

}  // namespace trireme::wire
