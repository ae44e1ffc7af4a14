#include "boosting/lightgbm_network.h"

#include <chrono>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "trireme/cancel.h"
#include "trireme/context.h"
#include "trireme/store.h"

namespace trireme::boosting {
namespace {

constexpr std::chrono::minutes kNetworkTimeout(30);

}  // namespace

LightgbmNetwork::LightgbmNetwork(const LightgbmLibrary& library) : library_(library) {
  const int world = context().world_size;
  if (world == 1) return;
  set_collective_timeout(std::chrono::duration<double>(kNetworkTimeout).count());
  port_ = std::make_unique<base::ReservedPort>();
  const std::string prefix = "lightgbm/address/";
  store::set(prefix + std::to_string(context().world_rank),
             base::node_address(context().num_nodes) + ":" + std::to_string(port_->port()));
  std::vector<std::string> keys;
  for (int rank = 0; rank < world; ++rank) keys.push_back(prefix + std::to_string(rank));
  std::string machines;
  std::set<int> ports;
  for (const auto& address : store::multi_get(keys, kNetworkTimeout)) {
    machines += (machines.empty() ? "" : ",") + address;
    ports.insert(std::stoi(address.substr(address.rfind(':') + 1)));
  }
  on_cancel([ports] { base::cut_ports(ports); });
  on_interrupt([] { throw std::runtime_error("LightGBM keeps the network of this attempt"); });
  library_.check(
      library_.LGBM_NetworkInit(machines.c_str(), port_->port(), static_cast<int>(kNetworkTimeout.count()), world));
}

void LightgbmNetwork::finish() { library_.check(library_.LGBM_NetworkFree()); }

}  // namespace trireme::boosting
