#include "format/checkpoint.h"

#include <sys/stat.h>

#include "format/hugging_face.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/format_writers.h"

namespace hisparse::format {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing_support::GgufFile;
using testing_support::safetensors_file;
using testing_support::string_pair;
using testing_support::TemporaryFolder;

std::string error_of(const std::string& path) {
  const auto opened = Checkpoint::open(path);
  return opened.ok() ? "(accepted)" : std::string(opened.status().message());
}

GgufFile one_tensor_file() {
  GgufFile file;
  file.pairs = {string_pair("general.architecture", "llama")};
  file.tensors = {{"token_embd.weight", {5000, 2}, 0, 0}};
  file.data = std::string(40000, 'w');
  return file;
}

std::string one_tensor_shard(const std::string& name, char fill) {
  return safetensors_file("{\"" + name + R"(":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}})",
                          std::string(4, fill));
}

constexpr std::string_view kConfig = R"({"model_type":"llama","hidden_size":64})";
constexpr std::string_view kIndex =
    R"({"metadata":{"total_size":8},"weight_map":{"x":"model-00002-of-00002.safetensors",)"
    R"("y":"model-00001-of-00002.safetensors"}})";

void write_sharded(const TemporaryFolder& folder) {
  folder.write("config.json", kConfig);
  folder.write("model.safetensors.index.json", kIndex);
  folder.write("model-00001-of-00002.safetensors", one_tensor_shard("y", 'y'));
  folder.write("model-00002-of-00002.safetensors", one_tensor_shard("x", 'x'));
}

TEST(Checkpoint, OpensGgufByItsMagicWhateverItsName) {
  const TemporaryFolder folder;
  const auto opened = Checkpoint::open(folder.write("weights.bin", one_tensor_file().bytes()));
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->kind(), CheckpointKind::kGguf);
  EXPECT_EQ(*(*opened)->metadata().get_string("general.architecture"), "llama");
  const TensorView* tensor = (*opened)->find("token_embd.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor, &(*opened)->tensors()[0]);
  EXPECT_EQ(tensor->bytes[39999], std::byte{'w'});
  EXPECT_EQ((*opened)->find("output.weight"), nullptr);
}

TEST(Checkpoint, OpensFolderWithOneFileAndGenerationConfig) {
  const TemporaryFolder folder;
  folder.write("config.json", kConfig);
  folder.write("generation_config.json", R"({"temperature":0.5})");
  folder.write("model.safetensors", one_tensor_shard("x", 'x'));
  const auto opened = Checkpoint::open(folder.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->kind(), CheckpointKind::kHuggingFace);
  EXPECT_EQ(*(*opened)->metadata().get_int("hidden_size"), 64);
  EXPECT_EQ(*(*opened)->metadata().get_double("generation_config.temperature"), 0.5);
  ASSERT_NE((*opened)->find("x"), nullptr);
  EXPECT_EQ((*opened)->find("x")->bytes[3], std::byte{'x'});
}

TEST(Checkpoint, OpensShardsInNameOrder) {
  const TemporaryFolder folder;
  write_sharded(folder);
  const auto opened = Checkpoint::open(folder.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  ASSERT_EQ((*opened)->tensors().size(), 2u);
  EXPECT_EQ((*opened)->tensors()[0].name, "y");
  EXPECT_EQ((*opened)->tensors()[1].name, "x");
  EXPECT_EQ((*opened)->find("x")->bytes[0], std::byte{'x'});
}

TEST(Checkpoint, IndexDecidesWhichShardATensorComesFrom) {
  const TemporaryFolder folder;
  write_sharded(folder);
  folder.write("model-00001-of-00002.safetensors",
               safetensors_file(R"({"x":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},)"
                                R"("y":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}})",
                                "!!yy"));
  const auto opened = Checkpoint::open(folder.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->tensors().size(), 2u);
  EXPECT_EQ((*opened)->find("x")->bytes[0], std::byte{'x'});
}

TEST(Checkpoint, TensorMissingFromItsShardIsNamed) {
  const TemporaryFolder folder;
  write_sharded(folder);
  folder.write("model-00002-of-00002.safetensors", one_tensor_shard("z", 'z'));
  EXPECT_THAT(error_of(folder.path()),
              AllOf(HasSubstr("index.json"), HasSubstr("'x'"), HasSubstr("00002-of-00002")));
}

TEST(Checkpoint, MissingFilesAreNamed) {
  const TemporaryFolder folder;
  EXPECT_TRUE(absl::IsNotFound(Checkpoint::open(folder.path() + "/none.gguf").status()));
  EXPECT_THAT(error_of(folder.path() + "/none.gguf"), HasSubstr("/none.gguf"));
  EXPECT_THAT(error_of(folder.path()), HasSubstr("config.json"));
  folder.write("config.json", kConfig);
  EXPECT_THAT(error_of(folder.path()), HasSubstr("model.safetensors"));
  folder.write("model.safetensors.index.json", kIndex);
  EXPECT_THAT(error_of(folder.path()), HasSubstr("model-00001-of-00002.safetensors"));
}

TEST(ModelConfig, IsReadWithoutWeights) {
  const TemporaryFolder folder;
  const std::string file = folder.write("config.json", R"({"hidden_size":64})");
  for (const std::string& path : {folder.path(), file}) {
    const absl::StatusOr<Metadata> config = read_model_config(path);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(*config->get_int("hidden_size"), 64);
  }
  const TemporaryFolder empty;
  EXPECT_THAT(std::string(read_model_config(empty.path()).status().message()),
              HasSubstr("config.json"));
}

TEST(Checkpoint, DamagedPartsAreNamedByTheirPath) {
  const TemporaryFolder folder;
  write_sharded(folder);
  folder.write("generation_config.json", "{");
  EXPECT_THAT(error_of(folder.path()), HasSubstr("/generation_config.json: "));
  folder.write("generation_config.json", "{}");
  folder.write("model-00002-of-00002.safetensors", "short");
  EXPECT_THAT(error_of(folder.path()), HasSubstr("/model-00002-of-00002.safetensors: "));
  folder.write("config.json", "");
  EXPECT_THAT(error_of(folder.path()), HasSubstr("/config.json: "));
}

TEST(Checkpoint, WhatIsNoCheckpointIsRefused) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of(folder.write("empty", "")), HasSubstr("not a GGUF file"));
  EXPECT_THAT(error_of(folder.write("model.safetensors", one_tensor_shard("x", 'x'))),
              HasSubstr("name the folder"));
  const std::string fifo = folder.path() + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(error_of(fifo), HasSubstr("not a regular file"));
}

TEST(Checkpoint, KeyInBothConfigsIsRefused) {
  const TemporaryFolder folder;
  folder.write("config.json", R"({"generation_config":{"top_p":0.1}})");
  folder.write("generation_config.json", R"({"top_p":0.9})");
  folder.write("model.safetensors", one_tensor_shard("x", 'x'));
  EXPECT_THAT(error_of(folder.path()), HasSubstr("'generation_config.top_p'"));
}

TEST(WeightMap, RefusesShardNamesThatLeaveTheFolder) {
  for (const std::string name :
       {"../m.safetensors", "/etc/m.safetensors", "a/m.safetensors", "a\\\\m.safetensors",
        "...safetensors", ".safetensors", "", "m.bin", "m\\u0000.safetensors"}) {
    const auto map = parse_weight_map(R"({"weight_map":{"x":")" + name + "\"}}", "index.json");
    ASSERT_FALSE(map.ok()) << name;
    EXPECT_THAT(std::string(map.status().message()),
                AllOf(HasSubstr("index.json: weight_map: tensor 'x'"), HasSubstr("file name")));
  }
  EXPECT_TRUE(parse_weight_map(R"({"weight_map":{"x":"m.safetensors"}})", "index.json").ok());
}

TEST(WeightMap, RefusesOtherShapes) {
  for (const char* text :
       {"{}", R"({"weight_map":[]})", R"({"weight_map":{}})", R"({"weight_map":{"x":1}})",
        R"({"weight_map":{"x":"a.safetensors","x":"b.safetensors"}})"}) {
    EXPECT_FALSE(parse_weight_map(text, "index.json").ok()) << text;
  }
}

std::string digest_of(const TemporaryFolder& folder, const GgufFile& file) {
  const auto opened = Checkpoint::open(folder.write("digest.gguf", file.bytes()));
  return opened.ok() ? (*opened)->digest() : std::string(opened.status().message());
}

TEST(CheckpointDigest, IsStableAndDependsOnEveryPart) {
  const TemporaryFolder folder;
  const GgufFile original = one_tensor_file();
  const std::string digest = digest_of(folder, original);
  EXPECT_EQ(digest.size(), 32u);
  EXPECT_EQ(digest.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(digest_of(folder, original), digest);

  std::vector<GgufFile> variants(6, original);
  variants[0].pairs[0] = string_pair("general.architecture", "qwen");
  variants[1].tensors[0].name = "token_embd.weigh";
  variants[2].tensors[0].dims = {2, 5000};
  variants[3].tensors[0].type = 1;  // f16
  variants[4].data[4095] = '!';
  variants[5].data[40000 - 4096] = '!';
  for (std::size_t i = 0; i < variants.size(); ++i) {
    EXPECT_NE(digest_of(folder, variants[i]), digest) << i;
  }
}

TEST(CheckpointDigest, MovingBytesBetweenNeighbouringTextsChangesIt) {
  const TemporaryFolder folder;
  GgufFile one;
  one.pairs = {string_pair("ab", "c")};
  GgufFile other;
  other.pairs = {string_pair("a", "bc")};
  EXPECT_NE(digest_of(folder, one), digest_of(folder, other));
}

}  // namespace
}  // namespace hisparse::format
