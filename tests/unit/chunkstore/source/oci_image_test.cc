#include "chunkstore/source/oci_image.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/hash.h"
#include "base/temp_dir.h"
#include "tests/unit/chunkstore/source/entry_collector.h"
#include "tests/unit/chunkstore/source/tar_builder.h"

namespace varve::chunkstore {
namespace {

constexpr const char* kManifestType = "application/vnd.oci.image.manifest.v1+json";
constexpr const char* kIndexType = "application/vnd.oci.image.index.v1+json";
constexpr const char* kLayerType = "application/vnd.oci.image.layer.v1.tar";

std::string json_quote(const std::string& text) {
  return "\"" + text + "\"";
}

/// Makes OCI layouts, right ones and wrong ones.
class OciImageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(make_directories(path("blobs/sha256")));
    write("oci-layout", R"({"imageLayoutVersion":"1.0.0"})");
  }

  std::string path(const std::string& name) const { return dir_.path() + "/" + name; }

  void write(const std::string& name, const std::string& content) const {
    ASSERT_TRUE(write_file_atomic(path(name), as_bytes(content)));
  }

  static std::string digest_of(const std::string& content) {
    return sha256(as_bytes(content)).hex();
  }

  /// Stores a blob and returns its descriptor; `more` is further JSON members.
  std::string blob(const std::string& type, const std::string& content,
                   const std::string& more = "") const {
    const std::string digest = digest_of(content);
    write("blobs/sha256/" + digest, content);
    return R"({"mediaType":)" + json_quote(type) + R"(,"digest":"sha256:)" + digest +
           R"(","size":)" + std::to_string(content.size()) + more + "}";
  }

  static std::string platform(const std::string& os, const std::string& architecture) {
    return R"(,"platform":{"os":)" + json_quote(os) + R"(,"architecture":)" +
           json_quote(architecture) + "}";
  }

  std::string manifest(const std::string& config, const std::vector<std::string>& layers,
                       const std::string& more = "") const {
    std::string list;
    for (const std::string& layer : layers) list += (list.empty() ? "" : ",") + layer;
    return blob(kManifestType,
                R"({"schemaVersion":2,"config":)" +
                    blob("application/vnd.oci.image.config.v1+json", config) + R"(,"layers":[)" +
                    list + "]}",
                more);
  }

  static std::string index(const std::vector<std::string>& manifests) {
    std::string list;
    for (const std::string& one : manifests) list += (list.empty() ? "" : ",") + one;
    return R"({"schemaVersion":2,"manifests":[)" + list + "]}";
  }

  Result<OciImage> open(const OciOptions& options = {}) const {
    VARVE_ASSIGN(const auto files, open_image_directory(dir_.path()));
    return open_oci_layout(*files, options);
  }

  void expect_failure(ErrorCode code, const std::string& text,
                      const OciOptions& options = {}) const {
    const auto image = open(options);
    ASSERT_FALSE(image);
    EXPECT_EQ(image.error().code(), code) << image.error().to_string();
    EXPECT_NE(image.error().to_string().find(text), std::string::npos) << image.error().to_string();
  }

  const std::string lower_ = TarBuilder().member({.name = "d/a"}, "a").bytes();
  const std::string upper_ = TarBuilder().member({.name = "d/.wh.a"}).bytes();
  const std::string config_ =
      R"({"architecture":"amd64","os":"linux","config":{"Env":["A=1","B="],"WorkingDir":"/w",)"
      R"("User":"1000:5","Entrypoint":["/e","x"],"Cmd":null,"Labels":{"k":"v"},)"
      R"("StopSignal":"SIGINT"},"rootfs":{"type":"layers","diff_ids":[]}})";
  TempDir dir_ = TempDir::create("varve-oci-").value();
};

TEST_F(OciImageTest, ReadsConfigAndLayersOfALayout) {
  write("index.json",
        index({manifest(config_, {blob(kLayerType, lower_), blob(kLayerType, upper_)})}));
  const auto image = open();
  ASSERT_TRUE(image) << image.error().to_string();
  EXPECT_EQ(image->config.env, (std::vector<std::string>{"A=1", "B="}));
  EXPECT_EQ(image->config.cwd, "/w");
  EXPECT_EQ(image->config.user, "1000:5");
  EXPECT_EQ(image->config.entrypoint, (std::vector<std::string>{"/e", "x"}));
  EXPECT_TRUE(image->config.cmd.empty());
  EXPECT_EQ(image->config.labels, (std::map<std::string, std::string>{{"k", "v"}}));
  EXPECT_EQ(image->config.stop_signal, "SIGINT");
  ASSERT_EQ(image->layers.size(), 2u);
  EntryCollector lower, upper;
  ASSERT_TRUE(OciImage::open_layer(image->layers[0]).value()->read_into(lower));
  ASSERT_TRUE(OciImage::open_layer(image->layers[1]).value()->read_into(upper));
  EXPECT_EQ(lower.contents.at("d/a"), "a");
  EXPECT_EQ(upper.find("d/a")->type, EntryType::kWhiteout);
}

TEST_F(OciImageTest, PicksThePlatformAndPassesOverAttestations) {
  const std::string amd = manifest(config_, {blob(kLayerType, lower_)}, platform("linux", "amd64"));
  const std::string arm = manifest(config_, {blob(kLayerType, upper_)}, platform("linux", "arm64"));
  const std::string attestation =
      manifest("{}", {blob("application/vnd.in-toto+json", "{}")},
               R"(,"annotations":{"vnd.docker.reference.type":"attestation-manifest"})" +
                   platform("unknown", "unknown"));
  write("index.json", index({blob(kIndexType, index({arm, attestation, amd}))}));
  const auto image = open();
  ASSERT_TRUE(image) << image.error().to_string();
  EXPECT_EQ(image->layers.at(0).stored_sha256, digest_of(lower_));
  EXPECT_EQ(open({.platform = "linux/arm64"})->layers.at(0).stored_sha256, digest_of(upper_));
  expect_failure(ErrorCode::kNotFound, "linux/arm64", {.platform = "linux/riscv64"});
}

TEST_F(OciImageTest, WhereTheIndexNamesNoPlatformTheConfigurationDoes) {
  const std::string arm_config = R"({"architecture":"arm64","os":"linux","variant":"v8"})";
  const std::string amd = manifest(config_, {blob(kLayerType, lower_)});
  const std::string arm = manifest(arm_config, {blob(kLayerType, upper_)});
  write("index.json", index({amd}));
  expect_failure(ErrorCode::kNotFound, "no image for platform linux/arm64; there is 'linux/amd64'",
                 {.platform = "linux/arm64"});
  write("index.json", index({arm}));
  expect_failure(ErrorCode::kNotFound, "there is 'linux/arm64/v8'");
  write("index.json", index({amd, arm}));
  EXPECT_EQ(open()->layers.at(0).stored_sha256, digest_of(lower_));
  EXPECT_EQ(open({.platform = "linux/arm64"})->layers.at(0).stored_sha256, digest_of(upper_));
  write("index.json", index({manifest("{}", {blob(kLayerType, lower_)})}));
  EXPECT_TRUE(open({.platform = "linux/arm64"}));
}

TEST_F(OciImageTest, SeveralImagesNeedAReference) {
  const auto named = [](const std::string& name) {
    return R"(,"annotations":{"org.opencontainers.image.ref.name":)" + json_quote(name) + "}";
  };
  write("index.json", index({manifest(config_, {blob(kLayerType, lower_)}, named("one")),
                             manifest(config_, {blob(kLayerType, upper_)}, named("two"))}));
  expect_failure(ErrorCode::kInvalidArgument, "2 images");
  EXPECT_EQ(open({.reference = "two"})->layers.at(0).stored_sha256, digest_of(upper_));
  expect_failure(ErrorCode::kNotFound, "'three'", {.reference = "three"});
}

TEST_F(OciImageTest, ABlobThatDoesNotMatchItsDigestIsNeverUsed) {
  const std::string layer = blob(kLayerType, lower_);
  write("index.json", index({manifest(config_, {layer})}));
  std::string damaged = lower_;
  damaged[512] = 'b';  // the content of d/a; the tar itself stays well-formed
  write("blobs/sha256/" + digest_of(lower_), damaged);
  const auto image = open();
  ASSERT_TRUE(image) << image.error().to_string();
  EntryCollector collector;
  const Status status = OciImage::open_layer(image->layers[0]).value()->read_into(collector);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::kCorruption);
  write("blobs/sha256/" + digest_of(lower_), lower_ + "x");
  expect_failure(ErrorCode::kCorruption, digest_of(lower_));
  write("blobs/sha256/" + digest_of(config_), config_.substr(0, config_.size() - 1) + " ");
  expect_failure(ErrorCode::kCorruption, digest_of(config_));
  ASSERT_EQ(::unlink(path("blobs/sha256/" + digest_of(config_)).c_str()), 0);
  expect_failure(ErrorCode::kNotFound, digest_of(config_));
}

TEST_F(OciImageTest, HostileJsonIsRefused) {
  const std::string layer = blob(kLayerType, lower_);
  write("index.json", "");
  expect_failure(ErrorCode::kInvalidArgument, "JSON");
  write("index.json", std::string(100'000, '['));
  expect_failure(ErrorCode::kInvalidArgument, "JSON");
  write("index.json", std::string((4 << 20) + 1, ' '));
  expect_failure(ErrorCode::kInvalidArgument, "4 MiB");
  write("index.json", R"({"manifests":[{"digest":"sha256:../../../etc/passwd","size":1}]})");
  expect_failure(ErrorCode::kUnsupported, "sha256:");
  write("index.json", R"({"manifests":[{"digest":"md5:aa","size":1}]})");
  expect_failure(ErrorCode::kUnsupported, "md5:aa");
  write("index.json", R"({"manifests":[{"digest":7}]})");
  expect_failure(ErrorCode::kInvalidArgument, "'digest'");
  write("index.json", R"({"manifests":{}})");
  expect_failure(ErrorCode::kInvalidArgument, "'manifests'");
  write("index.json", index({}));
  expect_failure(ErrorCode::kNotFound, "linux/amd64");
  write("index.json", index({manifest(config_, {})}));
  expect_failure(ErrorCode::kInvalidArgument, "no layers");
  write("index.json", index({manifest(config_, {blob("application/x-secret", "x")})}));
  expect_failure(ErrorCode::kUnsupported, "application/x-secret");
  write("index.json", index({manifest(R"({"config":{"Env":"A=1"}})", {layer})}));
  expect_failure(ErrorCode::kInvalidArgument, "'Env'");
  std::string nested = manifest(config_, {layer});
  for (int depth = 0; depth < 8; ++depth) nested = blob(kIndexType, index({nested}));
  write("index.json", index({nested}));
  expect_failure(ErrorCode::kInvalidArgument, "nested");
}

TEST_F(OciImageTest, BlobsThatAreSymlinksOutOfTheLayoutAreNotFollowed) {
  const std::string layer = blob(kLayerType, lower_);
  write("index.json", index({manifest(config_, {layer})}));
  const std::string name = path("blobs/sha256/" + digest_of(lower_));
  ASSERT_EQ(::unlink(name.c_str()), 0);
  ASSERT_EQ(::symlink("/etc/passwd", name.c_str()), 0);
  EXPECT_FALSE(open());
}

class DockerArchiveTest : public OciImageTest {
 protected:
  Result<OciImage> open_archive(const std::string& bytes, const OciOptions& options = {}) {
    write("image.tar", bytes);
    VARVE_ASSIGN(files_, open_image_archive(path("image.tar"), dir_.path()));
    VARVE_ASSIGN(const ImageLayoutKind kind, detect_image_layout(*files_));
    EXPECT_EQ(kind, ImageLayoutKind::kDockerArchive);
    return open_docker_archive(*files_, options);
  }

  static std::string config_for(const std::vector<std::string>& layers) {
    std::string list;
    for (const std::string& layer : layers) {
      list += (list.empty() ? "" : ",") + json_quote("sha256:" + digest_of(layer));
    }
    return R"({"config":{"Cmd":["sh"]},"rootfs":{"diff_ids":[)" + list + "]}}";
  }

  std::unique_ptr<ImageFiles> files_;
};

TEST_F(DockerArchiveTest, LayersMayBeFilesOrLinksToThem) {
  TarBuilder archive;
  archive.member({.name = "1/layer.tar"}, lower_)
      .member({.name = "2/layer.tar", .type = '2', .link = "../1/layer.tar"})
      .member({.name = "3/layer.tar", .type = '1', .link = "1/layer.tar"})
      .member({.name = "c.json"}, config_for({lower_, lower_, lower_}))
      .member({.name = "manifest.json"},
              R"([{"Config":"c.json","RepoTags":["x:1"],)"
              R"("Layers":["1/layer.tar","2/layer.tar","3/layer.tar"]}])");
  const auto image = open_archive(archive.bytes());
  ASSERT_TRUE(image) << image.error().to_string();
  EXPECT_EQ(image->config.cmd, std::vector<std::string>{"sh"});
  ASSERT_EQ(image->layers.size(), 3u);
  for (const OciImage::Layer& layer : image->layers) {
    EntryCollector collector;
    const Status status = OciImage::open_layer(layer).value()->read_into(collector);
    ASSERT_TRUE(status) << status.error().to_string();
    EXPECT_EQ(collector.contents.at("d/a"), "a");
  }
}

TEST_F(DockerArchiveTest, ALayerThatIsNotWhatTheConfigNamesIsCorrupt) {
  TarBuilder archive;
  archive.member({.name = "layer.tar"}, lower_)
      .member({.name = "c.json"}, config_for({upper_}))
      .member({.name = "manifest.json"}, R"([{"Config":"c.json","Layers":["layer.tar"]}])");
  const auto image = open_archive(archive.bytes());
  ASSERT_TRUE(image) << image.error().to_string();
  EntryCollector collector;
  const Status status = OciImage::open_layer(image->layers.at(0)).value()->read_into(collector);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::kCorruption);
}

TEST_F(DockerArchiveTest, NamesThatLeadNowhereOrInCirclesAreRefused) {
  for (const std::string layer : {"../x", "/etc/passwd", "missing", "loop", "out", "dir"}) {
    SCOPED_TRACE(layer);
    TarBuilder archive;
    archive.member({.name = "c.json"}, config_for({lower_}))
        .member({.name = "loop", .type = '2', .link = "loop"})
        .member({.name = "out", .type = '2', .link = "../../../../etc/passwd"})
        .member({.name = "dir", .type = '5'})
        .member({.name = "manifest.json"},
                R"([{"Config":"c.json","Layers":[)" + json_quote(layer) + "]}]");
    EXPECT_FALSE(open_archive(archive.bytes()));
  }
}

TEST_F(DockerArchiveTest, SeveralImagesAreToldApartByTag) {
  TarBuilder archive;
  archive.member({.name = "layer.tar"}, lower_)
      .member({.name = "c.json"}, config_for({lower_}))
      .member({.name = "manifest.json"},
              R"([{"Config":"c.json","RepoTags":["a:1"],"Layers":["layer.tar"]},)"
              R"({"Config":"c.json","RepoTags":["b:1","b:2"],"Layers":["layer.tar"]}])");
  EXPECT_FALSE(open_archive(archive.bytes()));
  EXPECT_TRUE(open_archive(archive.bytes(), {.reference = "b:2"}));
  EXPECT_FALSE(open_archive(archive.bytes(), {.reference = "c"}));
}

}  // namespace
}  // namespace varve::chunkstore
