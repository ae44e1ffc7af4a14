#include "wire/handshake.h"

#include "wire/secret.h"

namespace trireme::wire {
namespace {

constexpr std::string_view kMagic = "trireme";
constexpr std::size_t kNonceSize = 32;
constexpr std::size_t kChallengeSize = kMagic.size() + 1 + kNonceSize;

std::string make_challenge(const std::string& nonce) {
  return fmt::format("{}{}{}", kMagic, static_cast<char>(kProtocolVersion), nonce);
}

std::string hello_proof(const std::string& key, const std::string& challenge_nonce, const Hello& hello) {
  const std::string numbers = fmt::format("{}/{}/{}/{}", hello.version, hello.rank, hello.attempt, hello.pid);
  return prove(
      key, {"hello", challenge_nonce, hello.nonce.data, hello.run_id, hello.role, numbers, hello.host, hello.key_name});
}

std::string welcome_proof(const std::string& key, const std::string& challenge_nonce, const Hello& hello) {
  return prove(key, {"welcome", hello.nonce.data, challenge_nonce});
}

base::Result<void> check_hello(const std::string& secret, const std::string& challenge_nonce, const Hello& hello) {
  if (hello.version != kProtocolVersion) {
    return base::error("its protocol version is {}, expected {}", hello.version, kProtocolVersion);
  }
  if (hello.nonce.data.size() != kNonceSize) return base::error("its nonce has {} bytes", hello.nonce.data.size());
  if (!same_proof(hello.proof.data, hello_proof(key_of(secret, hello.key_name), challenge_nonce, hello))) {
    return base::error(base::ErrorCode::kDenied, "its key is not of this run");
  }
  return {};
}

base::Result<std::string> read_challenge(std::string_view challenge) {
  if (challenge.size() != kChallengeSize || !challenge.starts_with(kMagic)) {
    return base::error("the peer is not a trireme controller");
  }
  int version = static_cast<unsigned char>(challenge[kMagic.size()]);
  if (version != kProtocolVersion) {
    return base::error("the controller uses protocol version {}, this process {}; install the same trireme on both",
                       version, kProtocolVersion);
  }
  return std::string(challenge.substr(kMagic.size() + 1));
}

}  // namespace

asio::awaitable<base::Result<void>> greet_as_controller(Channel& channel, std::string secret, Admit admit) {
  const std::string nonce = random_bytes(kNonceSize);
  channel.send_payload(make_challenge(nonce));
  auto message = co_await channel.read_message();
  if (!message) co_return std::move(message).error().wrap("no hello");
  auto* hello = std::get_if<Hello>(&*message);
  if (!hello) co_return base::error("expected a hello, got {}", name_of(*message));
  if (auto checked = check_hello(secret, nonce, *hello); !checked) co_return std::move(checked).error();
  auto welcome = admit(*hello);
  if (!welcome) co_return std::move(welcome).error();
  welcome->proof = Bytes{welcome_proof(key_of(secret, hello->key_name), nonce, *hello)};
  channel.send(Message(*std::move(welcome)));
  channel.set_peer(std::move(*hello));
  co_return base::Result<void>();
}

asio::awaitable<base::Result<Welcome>> greet_as_peer(Channel& channel, std::string key, Hello hello) {
  auto frame = co_await channel.read_frame();
  if (!frame) co_return std::move(frame).error().wrap("no challenge");
  auto nonce = read_challenge(*frame);
  if (!nonce) co_return std::move(nonce).error();
  hello.nonce = Bytes{random_bytes(kNonceSize)};
  hello.proof = Bytes{hello_proof(key, *nonce, hello)};
  channel.send(Message(hello));
  auto message = co_await channel.read_message();
  if (!message) co_return std::move(message).error().wrap("the controller refused this process");
  auto* welcome = std::get_if<Welcome>(&*message);
  if (!welcome) co_return base::error("expected a welcome, got {}", name_of(*message));
  if (!same_proof(welcome->proof.data, welcome_proof(key, *nonce, hello))) {
    co_return base::error("the controller does not know the secret of this run");
  }
  co_return std::move(*welcome);
}

}  // namespace trireme::wire
