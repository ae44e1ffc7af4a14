#include <trireme/data_sink.h>
#include <trireme/data_source.h>
#include <trireme/trireme.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

// A source and a sink of your own: the readings of some sensors, and the high ones in a text file.

namespace data = trireme::data;

// A fragment is a sensor. Every process must list the same fragments, with the same rows in the same order.
class Sensors final : public trireme::DataSource {
 public:
  Sensors(std::int64_t sensors, std::int64_t readings) : sensors_(sensors), readings_(readings) {}

  std::string name() const override { return "sensors"; }

  std::vector<trireme::DataFragment> list() override {
    std::vector<trireme::DataFragment> fragments;
    for (std::int64_t i = 0; i < sensors_; ++i) {
      fragments.push_back({"sensor " + std::to_string(i), readings_, readings_ * 16});
    }
    return fragments;
  }

  // Returns the first row of the stream. It may be an earlier row than the requested one.
  std::int64_t open(std::size_t fragment, std::int64_t /*row*/, ArrowArrayStream* stream) override {
    trireme::List sensor;
    trireme::List value;
    for (std::int64_t i = 0; i < readings_; ++i) {
      sensor.push_back(static_cast<std::int64_t>(fragment));
      value.push_back(std::sin(static_cast<double>(i) + static_cast<double>(fragment)));
    }
    data::from_columns({{"sensor", sensor}, {"value", value}}).export_to(stream);
    return 0;
  }

 private:
  std::int64_t sensors_;
  std::int64_t readings_;
};

// One file, which gets its name when it is complete.
class TextFile final : public trireme::DataSink {
 public:
  explicit TextFile(std::string path) : path_(std::move(path)), file_(path_ + ".part") {}

  std::string name() const override { return "text file"; }
  bool supports_distributed_writes() const override { return false; }

  trireme::Value write(trireme::DataBlocks& blocks, std::int64_t /*task_idx*/) override {
    while (const auto batch = blocks.next()) {
      for (const auto& row : batch->to_rows()) {
        file_ << row["sensor"].as_int() << " " << row["value"].as_double() << "\n";
      }
    }
    if (!file_.flush()) throw std::runtime_error("cannot write " + path_ + ".part");
    return {};
  }

  void on_write_complete(const trireme::WriteResult& result) override {
    file_.close();
    if (std::rename((path_ + ".part").c_str(), path_.c_str()) != 0) throw std::runtime_error("cannot create " + path_);
    std::cout << result.num_rows << " rows in " << path_ << "\n";
  }

  void on_write_failed(const std::exception& /*error*/) override { std::remove((path_ + ".part").c_str()); }

 private:
  std::string path_;
  std::ofstream file_;
};

void train(const trireme::Config& /*config*/) {
  std::int64_t rows = 0;
  for (const auto& batch : trireme::get_dataset_shard("train").iter_batches({.global_batch_size = 50})) {
    rows += batch.rows();
  }
  trireme::report({{"rows", rows}});
}
TRIREME_TRAIN_FUNCTION(train);

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  const auto readings = data::from_source(std::make_shared<Sensors>(8, 100));
  const auto result =
      trireme::DataParallelTrainer(train, {.datasets = {{"train", readings.random_shuffle({.seed = 1})}},
                                           .scaling = {.num_workers = 2},
                                           .run = {.name = "sensors_cpp"}})
          .fit();
  std::cout << "rank 0 took " << result.metrics.value()["rows"].as_int() << " of " << readings.count() << " rows\n";

  // After fit(): workers run main() up to there.
  TextFile file(argc > 1 ? argv[1] : "high.txt");
  data::write_datasink(readings.filter([](const trireme::Dict& row) { return row["value"].as_double() > 0.9; }), file);
}
