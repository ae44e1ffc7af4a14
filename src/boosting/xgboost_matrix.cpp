#include "boosting/xgboost_matrix.h"

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>

#include "boosting/matrix_rows.h"
#include "trireme/context.h"

namespace trireme::boosting {
namespace {

// As in Python, where the last bits of a model could depend on it.
constexpr std::int64_t kBatchRows = 65536;

std::string array_interface(const float* data, std::size_t rows, std::size_t columns) {
  const std::string shape = columns == 0 ? "[" + std::to_string(rows) + "]"
                                         : "[" + std::to_string(rows) + ", " + std::to_string(columns) + "]";
  return "{\"data\": [" + std::to_string(reinterpret_cast<std::uintptr_t>(data)) + ", true], \"shape\": " + shape +
         ", \"typestr\": \"<f4\", \"version\": 3, \"strides\": null}";
}

class Feed {
 public:
  Feed(const XgboostLibrary& library, const std::string& dataset, const MatrixColumns& columns)
      : library_(library), shard_(get_dataset_shard(dataset)), columns_(columns) {
    library_.check(library_.XGProxyDMatrixCreate(&proxy_));
  }
  ~Feed() { (void)library_.XGDMatrixFree(proxy_); }
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  Handle proxy() const { return proxy_; }
  std::exception_ptr error() const { return error_; }
  std::int64_t rows() const { return rows_; }

  static void reset(Handle self) {
    static_cast<Feed*>(self)->guarded([](Feed& feed) { return feed.rewind(); });
  }
  static int next(Handle self) {
    return static_cast<Feed*>(self)->guarded([](Feed& feed) { return feed.advance(); });
  }

 private:
  // Exceptions must not pass through XGBoost: the pass ends, and the caller rethrows.
  template <typename F>
  int guarded(F action) {
    if (error_) return 0;
    try {
      return action(*this);
    } catch (...) {
      error_ = std::current_exception();
      return 0;
    }
  }

  // Every pass starts at the beginning, whatever the position in the checkpoint.
  int rewind() {
    at_.reset();
    Dict state = shard_.state();
    state["epoch"] = 0;
    state["rows"] = 0;
    shard_.load_state(state);
    rows_ = 0;
    return 0;
  }

  int advance() {
    if (!at_) {
      at_ = shard_.iter_batches({.batch_size = kBatchRows}).begin();
    } else {
      ++*at_;
    }
    if (*at_ == std::default_sentinel) return 0;
    const Batch& batch = **at_;
    const auto rows = static_cast<std::size_t>(batch.rows());
    rows_ += batch.rows();
    matrix_ = matrix_of(batch, columns_.features);
    library_.check(library_.XGProxyDMatrixSetDataDense(
        proxy_, array_interface(matrix_.data(), rows, columns_.features.size()).c_str()));
    set("label", columns_.label, batch);
    if (!columns_.weight.empty()) set("weight", columns_.weight, batch);
    std::vector<const char*> names, types;
    for (const auto& name : columns_.features) {
      names.push_back(name.c_str());
      types.push_back("float");
    }
    library_.check(library_.XGDMatrixSetStrFeatureInfo(proxy_, "feature_name", names.data(), names.size()));
    library_.check(library_.XGDMatrixSetStrFeatureInfo(proxy_, "feature_type", types.data(), types.size()));
    return 1;
  }

  void set(const char* field, const std::string& column, const Batch& batch) {
    const std::vector<float> values = matrix_of(batch, {column});
    library_.check(library_.XGDMatrixSetInfoFromInterface(proxy_, field,
                                                          array_interface(values.data(), values.size(), 0).c_str()));
  }

  const XgboostLibrary& library_;
  DataShard shard_;
  const MatrixColumns& columns_;
  Handle proxy_ = nullptr;
  std::optional<Batches::Iterator> at_;
  std::vector<float> matrix_;  // lives until the next batch: XGBoost does not copy it
  std::int64_t rows_ = 0;
  std::exception_ptr error_;
};

}  // namespace

XgboostMatrix::XgboostMatrix(const XgboostLibrary& library, const std::string& dataset, const MatrixColumns& columns,
                             const Dict& params, Handle reference)
    : library_(library) {
  Feed feed(library, dataset, columns);
  std::string config = "{\"missing\": NaN, \"nthread\": " + std::to_string(params.at("nthread").as_int());
  if (const Value* bins = params.find("max_bin")) config += ", \"max_bin\": " + std::to_string(bins->as_int());
  const int code = library.XGQuantileDMatrixCreateFromCallback(&feed, feed.proxy(), reference, &Feed::reset,
                                                               &Feed::next, (config + "}").c_str(), &handle_);
  if (feed.error()) std::rethrow_exception(feed.error());
  library.check(code);
}

XgboostMatrix::~XgboostMatrix() { (void)library_.XGDMatrixFree(handle_); }

}  // namespace trireme::boosting
