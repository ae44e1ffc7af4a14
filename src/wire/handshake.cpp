#include "wire/handshake.h"

#include "wire/secret.h"

namespace trireme::wire {
namespace {

constexpr std::string_view kMagic = "trireme";
constexpr std::size_t kNonceSize = 32;
// In the place of the protocol version; a reason follows.
constexpr char kNoController = 0;
constexpr std::size_t kLongestReason = 512;
constexpr std::size_t kChallengeSize = kMagic.size() + 1 + kNonceSize;

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
  const std::string refusal = no_challenge("");
  if (challenge.starts_with(refusal)) return base::error("{}", challenge.substr(refusal.size()));
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

Greeting::Greeting(std::string secret) : secret_(std::move(secret)), nonce_(random_bytes(kNonceSize)) {}

std::string Greeting::challenge() const {
  return fmt::format("{}{}{}", kMagic, static_cast<char>(kProtocolVersion), nonce_);
}

base::Result<void> Greeting::take(Message first, Channel& channel, const Admit& admit) const {
  auto* hello = std::get_if<Hello>(&first);
  if (!hello) return base::error("expected a hello, got {}", name_of(first));
  TRIREME_TRY(check_hello(secret_, nonce_, *hello));
  TRIREME_ASSIGN(auto welcome, admit(*hello));
  welcome.proof = Bytes{welcome_proof(key_of(secret_, hello->key_name), nonce_, *hello)};
  channel.send(Message(std::move(welcome)));
  channel.set_peer(std::move(*hello));
  return {};
}

asio::awaitable<base::Result<void>> greet_as_controller(SocketChannel& channel, std::string secret, Admit admit) {
  const Greeting greeting(std::move(secret));
  channel.send_payload(greeting.challenge());
  auto message = co_await channel.read_message();
  if (!message) co_return std::move(message).error().wrap("no hello");
  co_return greeting.take(*std::move(message), channel, admit);
}

std::string no_challenge(std::string_view why) {
  return fmt::format("{}{}{}", kMagic, kNoController, why.substr(0, kLongestReason));
}

asio::awaitable<base::Result<Welcome>> greet_as_peer(SocketChannel& channel, std::string key, Hello hello) {
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
