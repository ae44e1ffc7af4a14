#include "wire/tls.h"

#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "unit/engine/testing.h"
#include "unit/wire/live_server.h"

namespace tls_test {

using namespace trireme;
using namespace trireme::wire;
using namespace trireme::wire::testing;
using engine::testing::eventually;

namespace {

// A self-signed certificate, as an attacker makes one.
void use_certificate(asio::ssl::context& context, long days_left) {
  constexpr long kDay = 24 * 60 * 60;
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* made = X509_new();
  REQUIRE((key && made));
  X509_set_version(made, X509_VERSION_3);
  X509_gmtime_adj(X509_getm_notBefore(made), -10 * kDay);
  X509_gmtime_adj(X509_getm_notAfter(made), days_left * kDay);
  X509_NAME* name = X509_get_subject_name(made);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("trireme"), -1, -1, 0);
  X509_set_issuer_name(made, name);
  X509_set_pubkey(made, key);
  REQUIRE(X509_sign(made, key, EVP_sha256()) > 0);
  REQUIRE(SSL_CTX_use_certificate(context.native_handle(), made) == 1);
  REQUIRE(SSL_CTX_use_PrivateKey(context.native_handle(), key) == 1);
  X509_free(made);
  EVP_PKEY_free(key);
}

// What any TLS library does without the key: it accepts every server.
asio::ssl::context stock_client(asio::ssl::context::method method = asio::ssl::context::tls_client) {
  asio::ssl::context context(method);
  context.set_verify_mode(asio::ssl::verify_none);
  return context;
}

base::Result<void> handshake(const Address& address, asio::ssl::context& tls) {
  asio::io_context io;
  Socket socket(io);
  socket.connect(*endpoint_of(address));
  auto channel = std::make_shared<SocketChannel>(std::move(socket), tls, kHandshakeFrameLimit);
  auto work = [&]() -> asio::awaitable<base::Result<void>> {
    auto secured = co_await channel->tls_handshake(asio::ssl::stream_base::client);
    if (!secured) co_return std::move(secured).error();
    auto frame = co_await channel->read_frame();  // TLS 1.3: the server may still refuse
    if (!frame) co_return std::move(frame).error();
    co_return base::Result<void>();
  };
  return finish(io, work());
}

// A server that is not the run's: it performs a handshake with this context, and reads until the end.
std::string error_of_join_at(asio::ssl::context tls, const std::string& key_name, const std::string& key) {
  Address address = loopback_address();
  asio::io_context io;
  asio::basic_socket_acceptor<asio::generic::stream_protocol> acceptor(io);
  const auto endpoint = *endpoint_of(address);
  acceptor.open(endpoint.protocol());
  acceptor.bind(endpoint);
  acceptor.listen();
  sockaddr_in bound{};
  socklen_t size = sizeof bound;
  REQUIRE(::getsockname(acceptor.native_handle(), reinterpret_cast<sockaddr*>(&bound), &size) == 0);
  address.port = ntohs(bound.sin_port);
  auto serve = [&]() -> asio::awaitable<void> {
    auto channel =
        std::make_shared<SocketChannel>(co_await acceptor.async_accept(asio::use_awaitable), tls, kHandshakeFrameLimit);
    (void)co_await channel->tls_handshake(asio::ssl::stream_base::server);
    (void)co_await channel->read_frame();
  };
  asio::co_spawn(io, serve(), asio::detached);
  Hello hello = hello_of("run");
  hello.key_name = key_name;
  auto joined = finish(io, join(io, address, key, hello));
  REQUIRE_FALSE(joined);
  return joined.error().message();
}

}  // namespace

TEST_CASE("a peer without the run's key fails in the TLS handshake, and the reason is recorded") {
  LiveServer server(loopback_address());
  const std::string worker = key_of(server.secret(), "worker/0/1");
  struct Row {
    const char* what;
    std::function<asio::ssl::context()> tls;
    std::string why;
  };
  const auto with_certificate = [](long days_left) {
    auto context = stock_client();
    use_certificate(context, days_left);
    return context;
  };
  const auto with_key = [](const std::string& name, const std::string& key) { return *client_tls(name, key); };
  const std::string none = "it offered no key of this run";
  const std::string other = "its key is not of this run";
  std::uint64_t refused = 0;
  for (const Row& row : {
           Row{"no certificate and no key", [] { return stock_client(); }, none},
           Row{"a self-made certificate", [&] { return with_certificate(10); }, none},
           Row{"an expired certificate", [&] { return with_certificate(-1); }, none},
           Row{"TLS 1.2", [] { return stock_client(asio::ssl::context::tlsv12_client); }, "it does not use TLS 1.3"},
           Row{"the key of another run", [&] { return with_key("worker/0/1", key_of(random_bytes(32), "worker/0/1")); },
               other},
           Row{"the secret of another run", [&] { return with_key("", random_bytes(32)); }, other},
           Row{"another worker's key", [&] { return with_key("worker/0/2", worker); }, other},
           Row{"a worker's key as the secret", [&] { return with_key("", worker); }, other},
           Row{"an empty key", [&] { return with_key("", ""); }, other},
       }) {
    CAPTURE(row.what);
    auto tls = row.tls();
    CHECK_FALSE(handshake(server.address(), tls));
    ++refused;
    CHECK(eventually([&] { return server.refused_peers() == refused; }));
    CHECK(server.refusals().back() == "127.0.0.1: TLS handshake: " + row.why);
  }
  CHECK(server.opened_count() == 0);
  CHECK(serves(server));
  auto known = with_key("worker/0/1", worker);
  CHECK(handshake(server.address(), known));  // gets the challenge
}

TEST_CASE("a long key name is refused without a look-up") { CHECK_FALSE(client_tls(std::string(200, 'x'), "key")); }

TEST_CASE("plain text on a TLS port is refused") {
  LiveServer server(loopback_address());
  for (const std::string& text : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(500, '\0')}) {
    RawPeer peer(server.address());
    REQUIRE(peer.send(text));
    CHECK(peer.closed_by_other());
  }
  CHECK(eventually([&] { return server.refused_peers() == 2; }));
  CHECK(server.opened_count() == 0);
  CHECK(serves(server));
}

TEST_CASE("a peer with a key only accepts a controller that has it") {
  const std::string secret = random_bytes(kSecretSize);
  const std::string key = key_of(secret, "worker/0/1");
  const auto certified = [] {
    asio::ssl::context context(asio::ssl::context::tls_server);
    use_certificate(context, 10);
    return context;
  };
  CHECK(error_of_join_at(certified(), "worker/0/1", key).find("it has a certificate instead of the key of this run") !=
        std::string::npos);
  // Another run's controller, and a worker that uses its own key as if it were the run's secret.
  for (const std::string& theirs : {random_bytes(kSecretSize), key_of(secret, "worker/0/2")}) {
    const std::string error = error_of_join_at(*server_tls(theirs), "worker/0/1", key);
    CAPTURE(error);
    CHECK(error.find("TLS handshake: the controller refused the key of this process") != std::string::npos);
  }
}

TEST_CASE("connections are encrypted with TLS 1.3 and a key exchange of their own") {
  LiveServer server(loopback_address());
  asio::io_context io;
  Socket socket(io);
  socket.connect(*endpoint_of(server.address()));
  auto context = *client_tls("", server.secret());
  asio::ssl::stream<Socket> stream(std::move(socket), context);
  stream.handshake(asio::ssl::stream_base::client);
  SSL* tls = stream.native_handle();
  CHECK(std::string(SSL_get_version(tls)) == "TLSv1.3");
  CHECK(std::string(SSL_get_cipher(tls)) == "TLS_AES_128_GCM_SHA256");
  CHECK(SSL_get_negotiated_group(tls) != 0);  // an ephemeral exchange: recorded traffic stays secret
  CHECK(proved(tls));
}

}  // namespace tls_test
