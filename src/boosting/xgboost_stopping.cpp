#include "boosting/xgboost_stopping.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

namespace trireme::boosting {
namespace {

constexpr const char* kState = "xgboost_early_stopping";  // as in Python

bool is_maximized(const std::string& metric) {
  if (metric == "mape") return false;
  for (const char* name : {"auc", "pre", "map", "ndcg"}) {
    if (metric.starts_with(name)) return true;
  }
  return false;
}

}  // namespace

XgboostStopping::XgboostStopping(std::int64_t rounds, const Dict& checkpoint) : rounds_(rounds) {
  const Value* state = checkpoint.find(kState);
  if (rounds_ == 0 || state == nullptr) return;
  current_ = (*state)["rounds"].as_int();
  if (!(*state)["maximize"].is_null()) maximize_ = (*state)["maximize"].as_bool();
  const Dict& datasets = (*state)["history"].as_dict();
  if (datasets.empty()) return;
  dataset_ = datasets.begin()->first;
  const auto& [metric, history] = *datasets.begin()->second.as_dict().begin();
  metric_ = metric;
  history_ = history.as_list();
  best_ = (*state)["best"][dataset_][metric_].as_list();
}

bool XgboostStopping::after_round(int round, const Metrics& metrics, XgboostBooster& booster) {
  if (rounds_ == 0) return false;
  const auto& [name, value] = *(metrics.end() - 1);
  const double score = value.as_double();
  if (history_.empty()) {
    const std::size_t dash = name.find('-');
    dataset_ = name.substr(0, dash);
    metric_ = name.substr(dash + 1);
  }
  if (!maximize_) maximize_ = is_maximized(metric_);
  const bool first = history_.empty();
  history_.emplace_back(score);
  if (first || (*maximize_ ? score > best_.back().as_double() : score < best_.back().as_double())) {
    best_.emplace_back(score);
    current_ = 0;
    booster.set_attribute("best_score", shortest_text(score));
    booster.set_attribute("best_iteration", std::to_string(round));
  } else {
    ++current_;
  }
  return has_stopped();
}

Dict XgboostStopping::metadata() const {
  if (rounds_ == 0) return {};
  const Dict state{{"history", Dict{{dataset_, Dict{{metric_, history_}}}}},
                   {"best", Dict{{dataset_, Dict{{metric_, best_}}}}},
                   {"rounds", current_},
                   {"maximize", maximize_ ? Value(*maximize_) : Value()}};
  return {{kState, state}};
}

std::string shortest_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[400];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string scientific(buffer, end);
  const int exponent = std::atoi(scientific.c_str() + scientific.find('e') + 1);
  if (exponent < -4 || exponent >= 16) return scientific;
  end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
  std::string fixed(buffer, end);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

}  // namespace trireme::boosting
