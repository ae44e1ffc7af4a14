#include "checkpoint/sharded_tensors.h"

#include <doctest/doctest.h>

#include "unit/temp_dir.h"

namespace sharded_tensors_test {

using namespace trireme;
using namespace trireme::checkpoint;
using trireme::tests::TempDir;

namespace {

Value shard(List shape, List offsets, List parts) {
  return Dict{{"$shard", Dict{{"shape", std::move(shape)},
                              {"dtype", "F32"},
                              {"offsets", std::move(offsets)},
                              {"parts", std::move(parts)}}}};
}

// [[0, 1, 2], [3, 4, 5]] by column: rank 0 has the first, rank 1 the others, in two pieces.
// Value(List{...}) where it is the only element: compilers disagree on whether List{List{...}} is a list of one list.
Dict of_rank(int rank) {
  if (rank == 0) {
    return {{"weight", shard({2, 3}, {Value(List{0, 0})}, {Tensor::of<float>({0, 3}, {2, 1})})},
            {"pairs", Dict{{"$dict", List{Value(List{0, Tensor::of<float>({0})})}}}},
            {"scalar", shard({}, {Value(List{})}, {Tensor::scalar(2.5F)})},
            {"step", 3}};
  }
  return {{"weight", shard({2, 3}, {List{0, 1}, List{1, 1}},
                           {Tensor::of<float>({1, 2}, {1, 2}), Tensor::of<float>({4, 5}, {1, 2})})},
          {"pairs", Dict{{"$dict", List{Value(List{1, Tensor::of<float>({1})})}}}},
          {"scalar", shard({}, {}, {})},
          {"step", 4},
          {"more", Dict{{"$tuple", List{shard({0, 2}, {}, {}), "a"}}}}};
}

}  // namespace

TEST_CASE("tensors are assembled from shards") {
  const auto joined = join_shards({of_rank(0), of_rank(1)});
  REQUIRE(joined);
  CHECK(*joined ==
        Dict{{"weight", Tensor::of<float>({0, 1, 2, 3, 4, 5}, {2, 3})},
             {"pairs", Dict{{"$dict", List{List{0, Tensor::of<float>({0})}, List{1, Tensor::of<float>({1})}}}}},
             {"scalar", Tensor::scalar(2.5F)},
             {"step", 3},
             {"more", Dict{{"$tuple", List{Tensor(DType::kF32, {0, 2}), "a"}}}}});
  CHECK(join_shards({of_rank(1), of_rank(0)})->at("step") == Value(4));
  CHECK_FALSE(has_shards(*joined));
}

TEST_CASE("the complete state of a checkpoint is loaded from any of its folders") {
  TempDir folder;
  const std::string second = (folder.path() / "rank_1").native();
  REQUIRE(save_state(folder.path().native(), of_rank(0)));
  REQUIRE(save_state(second, of_rank(1)));
  const Value weight = Tensor::of<float>({0, 1, 2, 3, 4, 5}, {2, 3});
  CHECK(load_whole_state(folder.path().native())->at("weight") == weight);
  CHECK(load_whole_state(second + "/")->at("weight") == weight);
  CHECK(load_whole_state(second)->at("step") == Value(4));
}

TEST_CASE("overlaps do not compensate for gaps") {
  struct Row {
    const char* what;
    List offsets;
    List parts;
    int there;  // number of the 2 x 4 elements
  };
  auto part = [](std::int64_t rows, std::int64_t columns) {
    Tensor made(DType::kF32, {rows, columns});
    for (float& value : made.values<float>()) value = 1.0F;
    return Value(made);
  };
  for (const Row& row : {
           Row{"halves", {List{0, 0}, List{1, 0}}, {part(1, 4), part(1, 4)}, 8},
           Row{"as many elements, but one half twice", {List{0, 0}, List{0, 0}}, {part(1, 4), part(1, 4)}, 4},
           Row{"columns", {List{0, 0}, List{0, 1}, List{0, 3}}, {part(2, 1), part(2, 2), part(2, 1)}, 8},
           Row{"shifted by one", {List{0, 0}, List{0, 1}}, {part(2, 2), part(2, 2)}, 6},
           Row{"a corner is missing", {List{0, 0}, List{0, 0}, List{0, 0}}, {part(1, 4), part(2, 3), part(1, 1)}, 7},
           Row{"overlaps without a gap", {List{0, 0}, List{0, 1}, List{0, 0}}, {part(2, 3), part(2, 3), part(1, 1)}, 8},
           Row{"an empty part", {List{0, 0}, List{1, 4}}, {part(2, 4), part(1, 0)}, 8},
       }) {
    CAPTURE(row.what);
    const auto joined = join_shards({{{"w", shard({2, 4}, row.offsets, row.parts)}}});
    CHECK(joined.ok() == (row.there == 8));
    if (joined) {
      CHECK(joined->at("w") == part(2, 4));
    } else {
      CHECK(joined.error().message().find(fmt::format("{} of 8 elements are stored", row.there)) != std::string::npos);
    }
  }
}

TEST_CASE("incomplete or mismatched tensors are named") {
  auto message = [](const std::vector<Dict>& states) { return join_shards(states).error().message(); };
  CHECK(message({of_rank(0)}).find("'weight' of the state: only 2 of 6 elements are stored") != std::string::npos);
  CHECK(message({of_rank(0), {{"weight", shard({3, 3}, {}, {})}}}).find("F32[2, 3] on one rank and F32[3, 3]") !=
        std::string::npos);
  CHECK(message({of_rank(0), {{"weight", 3}}}).find("sharded on one rank and int on another") != std::string::npos);
  CHECK(message({{{"a", Dict{{"b", shard({2}, {Value(List{1})}, {Tensor::of<float>({0, 3})})}}}}})
            .find("'a/b' of the state: a shard of it, F32[2], does not fit") != std::string::npos);
  CHECK(message({{{"a", shard({2}, {}, {})}}}).find("no rank stored it") != std::string::npos);
  for (const Value& content : {Value(3), Value(Dict{{"shape", List{-1}}}), Value(Dict{{"shape", List{}}})}) {
    CHECK(message({{{"a", Dict{{"$shard", content}}}}}).find("'$shard' is damaged") != std::string::npos);
  }
}

}  // namespace sharded_tensors_test
