#include "launcher/json_text.h"

#include <gtest/gtest.h>

namespace varve::launcher {
namespace {

TEST(JsonTextTest, AnAttachAnswerIsRead) {
  const auto info = parse_image_info(
      R"({"image":"abc","config":{"env":["A=b"],"cwd":"/w","user":"u","entrypoint":["e"],"cmd":["c","d"],)"
      R"("stop_signal":"","labels":{}},"ids":[70000,4294967294],"lease":"l","mounts":1,)"
      R"("layers":[{"id":"x","domain":"default","path":"/p","tree":"/t","image_bytes":10,"stored_bytes":5,"metadata_bytes":1}]})");
  ASSERT_TRUE(info) << info.error().to_string();
  EXPECT_EQ(info->id, "abc");
  EXPECT_EQ(info->config.workdir, "/w");
  EXPECT_EQ(info->config.command, (std::vector<std::string>{"c", "d"}));
  EXPECT_EQ(info->large_ids, (std::vector<uint32_t>{70000, 4294967294}));
  ASSERT_EQ(info->layers.size(), 1u);
  EXPECT_EQ(info->layers[0].image_bytes, 10u);
  EXPECT_EQ(info->lease, "l");
}

TEST(JsonTextTest, AnImageOfLayersOnlyHasNoId) {
  const auto info = parse_image_info(R"({"image":null,"layers":[{"id":"x"}]})");
  ASSERT_TRUE(info) << info.error().to_string();
  EXPECT_EQ(info->id, "");
}

TEST(JsonTextTest, MalformedAnswersNameTheMember) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "JSON"},
      {"[]", "JSON"},
      {"{}", "layers"},
      {R"({"layers":[1]})", "layers"},
      {R"({"layers":[{}]})", "id"},
      {R"({"layers":[{"id":1}]})", "id"},
      {R"({"layers":[],"ids":[-1]})", "ids"},
      {R"({"layers":[],"ids":[4294967296]})", "ids"},
      {R"({"layers":[],"config":[]})", "config"},
      {R"({"layers":[],"config":{"env":[1]}})", "env"}};
  for (const auto& [text, member] : cases) {
    const auto info = parse_image_info(text);
    ASSERT_FALSE(info) << text;
    EXPECT_EQ(info.error().code(), ErrorCode::kCorruption);
    EXPECT_NE(info.error().to_string().find(member), std::string::npos) << info.error().to_string();
  }
}

TEST(JsonTextTest, RequestsNeverCarryMembersThatWereNotAskedFor) {
  EXPECT_EQ(to_json({.store = "s", .image = "i", .domain = "d"}),
            R"({"store":"s","image":"i","layers":[],"domain":"d"})");
  EXPECT_EQ(to_json({.store = "s",
                     .image = "i",
                     .layers = {"l"},
                     .domain = "d",
                     .mounts = true,
                     .keep = true}),
            R"({"store":"s","image":"i","layers":["l"],"domain":"d","mounts":true,"keep":true})");
}

TEST(ImageInfoTest, OfARepeatedLayerOnlyTheTopmostStays) {
  std::vector<LayerInfo> layers{{.id = "a"}, {.id = "b"}, {.id = "a"}, {.id = "c"}, {.id = "b"}};
  std::vector<UniqueFd> mounts(5);
  drop_repeated_layers(layers, mounts);
  ASSERT_EQ(layers.size(), 3u);
  EXPECT_EQ(mounts.size(), 3u);
  EXPECT_EQ(layers[0].id, "a");
  EXPECT_EQ(layers[1].id, "c");
  EXPECT_EQ(layers[2].id, "b");
  mounts.clear();
  layers.push_back({.id = "a"});
  drop_repeated_layers(layers, mounts);
  EXPECT_EQ(layers.size(), 3u);
}

}  // namespace
}  // namespace varve::launcher
