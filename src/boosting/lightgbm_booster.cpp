#include "boosting/lightgbm_booster.h"

#include <cstdio>
#include <fstream>
#include <stdexcept>

namespace trireme::boosting {
namespace {

// As json.dumps() in Python: other characters than ASCII are escaped, as UTF-16.
std::string ascii_json(const std::string& text) {
  std::string made = "\"";
  const auto escape = [&made](unsigned unit) {
    char buffer[16];
    std::snprintf(buffer, sizeof buffer, "\\u%04x", unit);
    made += buffer;
  };
  for (std::size_t at = 0; at < text.size();) {
    const auto first = static_cast<unsigned char>(text[at]);
    const std::size_t size = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    unsigned code = size == 1 ? first : first & (0xffU >> (size + 1));
    for (std::size_t more = 1; more < size; ++more) {
      code = (code << 6) | (static_cast<unsigned char>(text[at + more]) & 0x3fU);
    }
    at += size;
    if (code == '"' || code == '\\') {
      made += std::string("\\") + static_cast<char>(code);
    } else if (const std::size_t known = std::string("\b\t\n\f\r").find(static_cast<char>(code));
               code < 0x20 && known != std::string::npos) {
      made += std::string("\\") + "btnfr"[known];
    } else if (code >= 0x20 && code < 0x7f) {
      made += static_cast<char>(code);
    } else if (code < 0x10000) {
      escape(code);
    } else {
      escape(0xd800 + ((code - 0x10000) >> 10));
      escape(0xdc00 + ((code - 0x10000) & 0x3ff));
    }
  }
  return made + "\"";
}

std::string categories_line(const RowColumns& columns) {
  if (columns.categories.empty()) return "\npandas_categorical:null\n";
  std::string all;
  for (const auto& [name, values] : columns.categories) {
    std::string list;
    for (const Value& value : values.as_list()) {
      const auto* text = value.get_if<std::string>();
      list += (list.empty() ? "" : ", ") + (text != nullptr ? ascii_json(*text) : std::to_string(value.as_int()));
    }
    all += (all.empty() ? "[" : ", [") + list + "]";
  }
  return "\npandas_categorical:[" + all + "]\n";
}

bool is_higher_better(const std::string& metric) {
  for (const char* name : {"auc", "ndcg@", "map@", "average_precision"}) {
    if (metric.starts_with(name)) return true;
  }
  return false;
}

}  // namespace

LightgbmBooster::LightgbmBooster(const LightgbmLibrary& library, const LightgbmDataset& dataset, const Dict& params,
                                 const RowColumns& columns)
    : library_(library), categories_(categories_line(columns)) {
  library_.check(library_.LGBM_BoosterCreate(dataset.handle(), lightgbm_text(params).c_str(), &handle_));
}

void LightgbmBooster::add_evaluation(const LightgbmDataset& dataset, const std::string& name) {
  library_.check(library_.LGBM_BoosterAddValidData(handle_, dataset.handle()));
  datasets_.push_back(name);
}

void LightgbmBooster::put_first(const LightgbmModel& earlier) {
  library_.check(library_.LGBM_BoosterMerge(handle_, earlier.handle()));
}

int LightgbmBooster::rounds() const {
  int rounds = 0;
  library_.check(library_.LGBM_BoosterGetCurrentIteration(handle_, &rounds));
  return rounds;
}

void LightgbmBooster::set_params(const Dict& params) {
  library_.check(library_.LGBM_BoosterResetParameter(handle_, lightgbm_text(params).c_str()));
}

void LightgbmBooster::update() {
  int finished = 0;  // another round may find a split: with another sample of the rows, for example
  library_.check(library_.LGBM_BoosterUpdateOneIter(handle_, &finished));
}

std::vector<std::string> LightgbmBooster::metric_names() const {
  int count = 0;
  library_.check(library_.LGBM_BoosterGetEvalCounts(handle_, &count));
  std::size_t longest = 256;
  while (true) {
    std::vector<std::string> names(static_cast<std::size_t>(count), std::string(longest, '\0'));
    std::vector<char*> pointers;
    for (auto& name : names) pointers.push_back(name.data());
    std::size_t needed = 0;
    library_.check(library_.LGBM_BoosterGetEvalNames(handle_, count, &count, longest, &needed, pointers.data()));
    if (needed <= longest) {
      for (auto& name : names) name = name.c_str();
      return names;
    }
    longest = needed;
  }
}

List LightgbmBooster::evaluate(bool train) const {
  List results;
  if (datasets_.empty() && !train) return results;
  const std::vector<std::string> metrics = metric_names();
  std::vector<double> values(metrics.size());
  for (std::size_t dataset = train ? 0 : 1; dataset <= datasets_.size(); ++dataset) {
    const std::string name = dataset == 0 ? "train" : datasets_[dataset - 1];
    int count = 0;
    library_.check(library_.LGBM_BoosterGetEval(handle_, static_cast<int>(dataset), &count, values.data()));
    for (std::size_t each = 0; each < metrics.size(); ++each) {
      results.push_back(List{name, metrics[each], values[each], is_higher_better(metrics[each])});
    }
  }
  return results;
}

void LightgbmBooster::save(const std::string& path) const {
  library_.check(library_.LGBM_BoosterSaveModel(handle_, 0, -1, 0, path.c_str()));
  std::ofstream file(path, std::ios::app);
  file << categories_;
  file.close();
  if (!file) throw std::runtime_error("the model cannot be written to " + path);
}

}  // namespace trireme::boosting
