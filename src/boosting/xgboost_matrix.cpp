#include "boosting/xgboost_matrix.h"

#include <cctype>
#include <cstdint>
#include <exception>
#include <string>

#include "boosting/json_text.h"

namespace trireme::boosting {
namespace {

std::string array_interface(const void* data, const std::string& type, const std::string& shape,
                            const std::string& mask = "") {
  return "{\"data\": [" + std::to_string(reinterpret_cast<std::uintptr_t>(data)) + ", true], \"shape\": [" + shape +
         "], \"typestr\": \"" + type + "\", \"version\": 3, \"strides\": null" +
         (mask.empty() ? "" : ", \"mask\": " + mask) + "}";
}

// XGBoost's type of an Arrow format.
std::string type_of(const FeatureColumns::Column& column) {
  const char format = column.format[0];
  const char kind = format == 'f' || format == 'g' ? 'f' : std::isupper(format) != 0 ? 'u' : 'i';
  return std::string("<") + kind + std::to_string(column.width);
}

std::string array_interfaces(const FeatureColumns& columns) {
  const std::string rows = std::to_string(columns.rows());
  std::string all;
  for (const auto& column : columns.columns()) {
    const auto& [validity, values] = column.buffers;
    const std::string mask = validity == nullptr ? "" : array_interface(validity, "<t1", rows);
    all += (all.empty() ? "[" : ", ") + array_interface(values, type_of(column), rows, mask);
  }
  return all + "]";
}

class Feed {
 public:
  Feed(const XgboostLibrary& library, WorkerRows& rows) : library_(library), rows_(rows) {
    library_.check(library_.XGProxyDMatrixCreate(&proxy_));
  }
  ~Feed() { (void)library_.XGDMatrixFree(proxy_); }
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  Handle proxy() const { return proxy_; }
  std::exception_ptr error() const { return error_; }

  static void reset(Handle self) {
    static_cast<Feed*>(self)->guarded([](Feed& feed) {
      feed.rows_.rewind();
      return 0;
    });
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

  int advance() {
    const RowBatch* batch = rows_.next();  // lives until the next call: XGBoost does not copy it
    if (batch == nullptr) return 0;
    const RowColumns& columns = rows_.columns();
    const std::string rows = std::to_string(batch->rows);
    if (batch->columns) {
      library_.check(library_.XGProxyDMatrixSetDataColumnar(proxy_, array_interfaces(*batch->columns).c_str()));
    } else {
      const std::string shape = rows + ", " + std::to_string(columns.features.size());
      library_.check(
          library_.XGProxyDMatrixSetDataDense(proxy_, array_interface(batch->matrix.data(), "<f8", shape).c_str()));
    }
    set("label", array_interface(batch->labels.data(), "<f4", rows));
    if (!batch->weights.empty()) set("weight", array_interface(batch->weights.data(), "<f4", rows));
    if (!batch->groups.empty()) set("qid", array_interface(batch->groups.data(), "<i4", rows));
    std::vector<const char*> names;
    for (const auto& name : columns.features) names.push_back(name.c_str());
    std::vector<const char*> types = feature_types(columns);
    library_.check(library_.XGDMatrixSetStrFeatureInfo(proxy_, "feature_name", names.data(), names.size()));
    library_.check(library_.XGDMatrixSetStrFeatureInfo(proxy_, "feature_type", types.data(), types.size()));
    return 1;
  }

  void set(const char* field, const std::string& array) {
    library_.check(library_.XGDMatrixSetInfoFromInterface(proxy_, field, array.c_str()));
  }

  const XgboostLibrary& library_;
  WorkerRows& rows_;
  Handle proxy_ = nullptr;
  std::exception_ptr error_;
};

bool is_approximate(const Dict& params) {
  const Value* method = params.find("tree_method");
  return method != nullptr && *method == Value("approx");
}

}  // namespace

bool keeps_files(const Config& config) {
  return config["external_memory"].as_bool() || is_approximate(config["params"].as_dict());
}

std::vector<const char*> feature_types(const RowColumns& columns) {
  std::vector<const char*> types;
  for (const auto& name : columns.features) types.push_back(columns.categories.contains(name) ? "c" : "float");
  return types;
}

XgboostMatrix::XgboostMatrix(const XgboostLibrary& library, const std::string& dataset, const RowColumns& columns,
                             const Dict& params, Handle reference, const std::string& cache)
    : library_(library) {
  WorkerRows rows(dataset, columns);
  rows.count();
  Feed feed(library, rows);
  std::string config = "{\"missing\": NaN, \"nthread\": " + std::to_string(params.at("nthread").as_int());
  if (const Value* bins = params.find("max_bin")) config += ", \"max_bin\": " + std::to_string(bins->as_int());
  if (!cache.empty()) config += ", \"cache_prefix\": " + to_json(cache) + ", \"on_host\": false";
  config += "}";
  const auto create =
      cache.empty() ? library.XGQuantileDMatrixCreateFromCallback : library.XGExtMemQuantileDMatrixCreateFromCallback;
  const int code = is_approximate(params)
                       ? library.XGDMatrixCreateFromCallback(&feed, feed.proxy(), &Feed::reset, &Feed::next,
                                                             config.c_str(), &handle_)
                       : create(&feed, feed.proxy(), reference, &Feed::reset, &Feed::next, config.c_str(), &handle_);
  if (feed.error()) std::rethrow_exception(feed.error());
  library.check(code);
}

XgboostMatrix::~XgboostMatrix() { (void)library_.XGDMatrixFree(handle_); }

}  // namespace trireme::boosting
