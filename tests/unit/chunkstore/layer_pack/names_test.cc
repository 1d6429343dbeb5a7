// Names of images: rm, and compose of one image.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/unit/chunkstore/layer_pack/layer_pack_fixture.h"

namespace varve::layer_pack {
namespace {

TEST_F(LayerPackTest, RmRemovesNamesAndGcWhatHasNoneLeft) {
  write("tree/f", "x");
  write("other/g", "y");
  const std::string image =
      json_text(ok({"build", path("tree"), "--tag", "a:1", "--json"}), "image");
  ok({"build", path("tree"), "--tag", "team/a"});
  ok({"build", path("other"), "--tag", "b:1"});
  EXPECT_EQ(ok({"rm", "a:1", "a:1"}), "removed a:1\n");
  EXPECT_EQ(run({"inspect", "a:1"}), 3);
  EXPECT_EQ(ok({"rm", "--json", "team/a", "b:1"})
                .find(R"({"removed":[{"ref":"team/a:latest",)"
                      R"("image":")" +
                      image),
            0u)
      << out_;
  EXPECT_EQ(ok({"ls"}), "");
  EXPECT_EQ(ok({"cat", image, "f"}), "x") << "data goes by gc";
  ok({"gc", "--grace", "0"});
  EXPECT_EQ(run({"cat", image, "f"}), 3);
  EXPECT_EQ(published_count(), 0u);
}

TEST_F(LayerPackTest, RmChecksEveryNameBeforeItRemovesOne) {
  write("tree/f", "x");
  const std::string image =
      json_text(ok({"build", path("tree"), "--tag", "a:1", "--json"}), "image");
  const auto expect = [&](const std::string& name, int status, const std::string& text) {
    EXPECT_EQ(run({"rm", "a:1", name}), status);
    EXPECT_NE(err_.find(text), std::string::npos) << err_;
    EXPECT_EQ(out_, "");
    ok({"inspect", "a:1"});
  };
  expect("b:1", 3, "no name 'b:1' in store");
  expect("a", 3, "no name 'a:latest' in store");
  expect(image, 2, "'" + image + "' is an id, not a name");
  expect(image.substr(0, 8), 2, "'" + image.substr(0, 8) + "' is an id, not a name");
  expect("A:1", 2, "'A:1' is not an image name");
  expect("../a:1", 2, "'../a:1' is not an image name");
  EXPECT_EQ(run({"rm"}), 2);
  write("store/refs/a:1", "damage");
  EXPECT_EQ(ok({"rm", "a:1", "--json"}), "{\"removed\":[{\"ref\":\"a:1\",\"image\":null}]}\n");
}

TEST_F(LayerPackTest, ANameThatIsNoRegularFileIsDamagedAndCanBeRemoved) {
  write("tree/f", "x");
  ok({"build", path("tree"), "--tag", "a:1"});
  std::filesystem::create_symlink("a:1", path("store/refs/b:1"));
  EXPECT_EQ(run({"ls"}), 6);
  EXPECT_NE(out_.find("a:1"), std::string::npos);
  EXPECT_NE(err_.find("refs/b:1"), std::string::npos) << err_;
  EXPECT_EQ(run({"inspect", "b:1"}), 6);
  EXPECT_EQ(run({"verify"}), 6);
  EXPECT_EQ(run({"gc"}), 6);
  EXPECT_EQ(ok({"rm", "b:1", "--json"}), "{\"removed\":[{\"ref\":\"b:1\",\"image\":null}]}\n");
  ok({"gc"});
  ok({"cat", "a:1", "f"});
}

TEST_F(LayerPackTest, ComposeOfOneImageGivesItAnotherName) {
  write("tree/f", "x");
  const std::string image =
      json_text(ok({"build", path("tree"), "--tag", "a:1", "--env", "A=1", "--json"}), "image");
  EXPECT_EQ(json_text(ok({"compose", "a:1", "--tag", "b:2", "--json"}), "image"), image);
  EXPECT_NE(ok({"inspect", image}).find("ref    b:2"), std::string::npos) << out_;
}

}  // namespace
}  // namespace varve::layer_pack
