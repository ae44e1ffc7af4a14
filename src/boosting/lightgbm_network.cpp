#include "boosting/lightgbm_network.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "boosting/connections.h"
#include "trireme/cancel.h"
#include "trireme/context.h"
#include "trireme/store.h"

namespace trireme::boosting {
namespace {

constexpr std::chrono::minutes kNetworkTimeout(30);

// The address at which the other workers reach this one.
std::string own_address() {
  if (context().num_nodes == 1) return "127.0.0.1";
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  addrinfo hints{};
  hints.ai_family = AF_INET;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host, nullptr, &hints, &found) != 0) {
    throw std::runtime_error(std::string("the address of host ") + host + " cannot be found");
  }
  char text[INET_ADDRSTRLEN] = {};
  ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(found->ai_addr)->sin_addr, text, sizeof text);
  ::freeaddrinfo(found);
  return text;
}

}  // namespace

LightgbmNetwork::LightgbmNetwork(const LightgbmLibrary& library) : library_(library) {
  const int world = context().world_size;
  if (world == 1) return;
  set_collective_timeout(std::chrono::duration<double>(kNetworkTimeout).count());
  port_ = std::make_unique<ReservedPort>();
  const std::string prefix = "lightgbm/address/";
  store::set(prefix + std::to_string(context().world_rank), own_address() + ":" + std::to_string(port_->port()));
  std::vector<std::string> keys;
  for (int rank = 0; rank < world; ++rank) keys.push_back(prefix + std::to_string(rank));
  std::string machines;
  std::set<int> ports;
  for (const auto& address : store::multi_get(keys, kNetworkTimeout)) {
    machines += (machines.empty() ? "" : ",") + address;
    ports.insert(std::stoi(address.substr(address.rfind(':') + 1)));
  }
  on_cancel([ports] { cut_ports(ports); });
  on_interrupt([] { throw std::runtime_error("LightGBM keeps the network of this attempt"); });
  library_.check(
      library_.LGBM_NetworkInit(machines.c_str(), port_->port(), static_cast<int>(kNetworkTimeout.count()), world));
}

void LightgbmNetwork::finish() { library_.check(library_.LGBM_NetworkFree()); }

}  // namespace trireme::boosting
