#include "control/metrics_writer.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace trireme::control {
namespace {

// A table that keeps getting new columns is rewritten repeatedly; this bounds the share of the time.
constexpr int kIdleShare = 9;
constexpr auto kLongestPause = std::chrono::seconds(1);

}  // namespace

MetricsWriter::MetricsWriter(std::string folder, Warn warn) : files_(std::move(folder)), warn_(std::move(warn)) {
  thread_ = std::jthread([this] { loop(); });
}

MetricsWriter::~MetricsWriter() { (void)close().ok(); }

base::Result<void> MetricsWriter::close() {
  if (!thread_.joinable()) return {};
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  thread_.join();
  return std::move(last_);
}

void MetricsWriter::append(const Dict& report) {
  std::lock_guard lock(mutex_);
  if (reports_.size() < kMaxWaiting) reports_.push_back(report);
}

void MetricsWriter::flush() {
  std::lock_guard lock(mutex_);
  wanted_ = true;
  changed_.notify_all();
}

void MetricsWriter::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return wanted_ || ending_; });
    wanted_ = false;
    const bool last = ending_;
    const auto reports = std::exchange(reports_, {});
    lock.unlock();
    const auto began = std::chrono::steady_clock::now();
    auto written = write(reports);
    const bool news = !written && !std::exchange(failing_, true);
    if (written) failing_ = false;
    if (news && last) last_ = std::move(written);
    if (last) return;
    if (news) warn_(written.error().message());
    const auto took = std::chrono::steady_clock::now() - began;
    lock.lock();
    changed_.wait_for(lock, std::min<std::chrono::nanoseconds>(kIdleShare * took, kLongestPause),
                      [&] { return ending_; });
  }
}

base::Result<void> MetricsWriter::write(const std::vector<Dict>& reports) {
  for (const auto& report : reports) files_.append(report);
  auto written = files_.flush();
  if (!written && files_.waiting() > kMaxWaiting) files_.drop();
  TRIREME_TRY(std::move(written),
              "the run continues without metrics.csv and metrics.jsonl; events.jsonl has all reports");
  return {};
}

}  // namespace trireme::control
