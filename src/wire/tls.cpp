#include "wire/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <asio/ssl/error.hpp>
#include <memory>

#include "wire/secret.h"

namespace trireme::wire {
namespace {

// A hash of 256 bits, like the keys.
constexpr const char* kCipherName = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kCipher[] = {0x13, 0x01};
// TLS does not allow an empty identity. The names of derived keys contain a slash.
constexpr std::string_view kNoName = "run";
constexpr std::size_t kLongestName = 128;

// What the callbacks below need, owned by the context.
struct Keys {
  std::string secret;  // of the server: keys are derived from it; of the client: its key
  std::string name;    // of the client's key
};

void free_keys(void*, void* keys, CRYPTO_EX_DATA*, int, long, void*) { delete static_cast<Keys*>(keys); }

int keys_index() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, free_keys);
  return index;
}

const Keys& keys_of(SSL* tls) { return *static_cast<Keys*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(tls), keys_index())); }

// Not the key itself: it also signs the greeting.
SSL_SESSION* session_of(SSL* tls, const std::string& key) {
  const std::string derived = prove(key, {"tls"});
  SSL_SESSION* session = SSL_SESSION_new();
  if (session != nullptr &&
      SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(derived.data()), derived.size()) ==
          1 &&
      SSL_SESSION_set_cipher(session, SSL_CIPHER_find(tls, kCipher)) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
    return session;
  }
  SSL_SESSION_free(session);
  return nullptr;
}

// The server's side: the key that a peer names. Any name has a key, which only its owner and this process know.
int find_session(SSL* tls, const unsigned char* identity, std::size_t size, SSL_SESSION** session) {
  *session = nullptr;
  if (size > kLongestName) return 1;  // no key: the handshake fails
  const std::string_view name(reinterpret_cast<const char*>(identity), size);
  *session = session_of(tls, key_of(keys_of(tls).secret, name == kNoName ? "" : name));
  return *session != nullptr;
}

// The client's side.
int use_session(SSL* tls, const EVP_MD*, const unsigned char** identity, std::size_t* size, SSL_SESSION** session) {
  const Keys& keys = keys_of(tls);
  *identity = reinterpret_cast<const unsigned char*>(keys.name.data());
  *size = keys.name.size();
  *session = session_of(tls, keys.secret);
  return *session != nullptr;
}

base::Result<asio::ssl::context> context_with(asio::ssl::context::method side, Keys keys) {
  asio::ssl::context context(side);
  SSL_CTX* native = context.native_handle();
  auto owned = std::make_unique<Keys>(std::move(keys));
  if (SSL_CTX_set_ciphersuites(native, kCipherName) != 1 ||
      SSL_CTX_set_ex_data(native, keys_index(), owned.get()) != 1) {
    return base::error("OpenSSL does not support {}", kCipherName);
  }
  (void)owned.release();  // freed with the context
  // Every connection is made once: tickets to resume it would cost a fifth of the handshake.
  SSL_CTX_set_options(native, SSL_OP_NO_TICKET);
  SSL_CTX_clear_options(native, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);  // it imitates TLS 1.2
  SSL_CTX_set_num_tickets(native, 0);
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
  return context;
}

}  // namespace

base::Result<asio::ssl::context> server_tls(const std::string& secret) {
  TRIREME_ASSIGN(auto context, context_with(asio::ssl::context::tlsv13_server, {secret, {}}));
  // There is no certificate, so a handshake without a key cannot succeed.
  SSL_CTX_set_psk_find_session_callback(context.native_handle(), find_session);
  return context;
}

base::Result<asio::ssl::context> client_tls(const std::string& key_name, const std::string& key) {
  const std::string name = key_name.empty() ? std::string(kNoName) : key_name;
  if (name.size() > kLongestName) return base::error("the name of the key has {} bytes", name.size());
  TRIREME_ASSIGN(auto context, context_with(asio::ssl::context::tlsv13_client, {key, name}));
  // There is no certificate authority, so a server that has a certificate instead of the key is refused.
  context.set_verify_mode(asio::ssl::verify_peer);
  SSL_CTX_set_psk_use_session_callback(context.native_handle(), use_session);
  return context;
}

bool proved(SSL* tls) { return SSL_session_reused(tls) == 1; }

base::Error handshake_error(SSL* tls, const asio::error_code& failure) {
  if (failure.category() != asio::error::get_ssl_category()) return base::Error(failure.message());
  const auto denied = [&](std::string why) { return base::Error(std::move(why), base::ErrorCode::kDenied); };
  switch (ERR_GET_REASON(static_cast<unsigned long>(failure.value()))) {
    case SSL_R_BINDER_DOES_NOT_VERIFY: return denied("its key is not of this run");
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
    case SSL_R_NO_SHARED_CIPHER: return denied("it offered no key of this run");
    case SSL_R_CERTIFICATE_VERIFY_FAILED: return denied("it has a certificate instead of the key of this run");
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_WRONG_VERSION_NUMBER: return denied("it does not use TLS 1.3");
    default: break;
  }
  if (SSL_is_server(tls) == 1) return denied(failure.message());
  return denied(fmt::format("the controller refused the key of this process: {}", failure.message()));
}

}  // namespace trireme::wire
