#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>
#include <thread>

#include "base/file_io.h"
#include "chunkstore/format/keys.h"
#include "chunkstore/format/placement.h"
#include "chunkstore/format/ref.h"
#include "tests/kernel/fs/fs_test.h"

namespace varve::test {
namespace {

namespace json = boost::json;

size_t descriptor_count(pid_t pid) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    ++count;
  }
  return count;
}

class FsAttachTest : public FsTest {
 protected:
  void SetUp() override { varvefs_.start(); }

  uint64_t status(const char* name) {
    ControlClient client = varvefs_.connect();
    return client.get("/v1/status").value().body.at(name).to_number<uint64_t>();
  }
  // Waits until the counter `name` of the status is `value`; the test's own timeout bounds it.
  void wait_for_status(const char* name, uint64_t value) {
    while (status(name) != value) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
};

TEST_P(FsAttachTest, StatusNamesTheTransport) {
  ControlClient client = varvefs_.connect();
  const auto answer = client.get("/v1/status").value();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body.at("transport").as_string(), transport_test_name(GetParam()));
  EXPECT_EQ(answer.body.at("pid").as_int64(), varvefs_.pid());
}

TEST_P(FsAttachTest, AnAttachEndsWithItsConnection) {
  {
    ControlClient client = varvefs_.connect();
    const auto answer = varvefs_.attach(client, "app:v1", "default", true);
    EXPECT_EQ(access(VarvefsProcess::image_of(answer).c_str(), F_OK), 0);
    EXPECT_EQ(status("attachments"), 1u);
  }
  wait_for_status("attachments", 0);
  wait_for_status("views", 0);
  EXPECT_TRUE(std::filesystem::is_empty(varvefs_.mountpoint()));
}

TEST_P(FsAttachTest, AKeptAttachOutlivesItsConnectionUntilItsLeaseIsGivenBack) {
  std::string lease;
  {
    ControlClient client = varvefs_.connect();
    const auto answer = client
                            .post("/v1/attach", {{"store", "file://" + varvefs_.store_directory()},
                                                 {"image", "app:v1"},
                                                 {"keep", true}})
                            .value();
    ASSERT_EQ(answer.status, 200);
    lease = answer.body.at("lease").as_string().c_str();
  }
  ControlClient client = varvefs_.connect();
  EXPECT_EQ(status("attachments"), 1u);
  EXPECT_EQ(client.post("/v1/detach", {{"lease", lease}}).value().status, 200);
  EXPECT_EQ(client.post("/v1/detach", {{"lease", lease}}).value().status, 404);
  wait_for_status("views", 0);
}

TEST_P(FsAttachTest, ALayerInUseStaysReadableAfterItsDetachUntilItsLastUserGoes) {
  UniqueFd image;
  UniqueFd tree_file;
  UniqueFd mount;
  {
    ControlClient client = varvefs_.connect();
    auto answer = varvefs_.attach(client, "app:v1", "default", true);
    image = open_file(VarvefsProcess::image_of(answer), O_RDONLY).value();
    tree_file = open_file(VarvefsProcess::tree_of(answer) + "/large/text", O_RDONLY).value();
    mount = std::move(answer.fds.at(0));
  }
  wait_for_status("attachments", 0);
  wait_for_status("layers", 0);
  const std::string mounted = "/proc/self/fd/" + std::to_string(mount.get());
  EXPECT_EQ(compare_trees(shared_.source, mounted + "/."), std::vector<std::string>());
  Bytes text(5'000'000);
  EXPECT_TRUE(pread_exact(tree_file.get(), 0, text));
  Bytes bytes(shared_.layer.image.size());
  EXPECT_TRUE(pread_exact(image.get(), 0, bytes));
  EXPECT_TRUE(bytes == shared_.layer.image);
  EXPECT_EQ(status("views"), 1u);
  image.reset();
  tree_file.reset();
  mount.reset();
  // The kernel may keep unused inodes as long as it likes; it is asked to let them go.
  while (status("views") != 0) {
    must(write_all(open_file("/proc/sys/vm/drop_caches", O_WRONLY).value().get(), as_bytes("2")));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

TEST_P(FsAttachTest, ADetachedLayerKeepsItsMountForTheNextAttachUntilItsIdleTimeIsOver) {
  ASSERT_EQ(varvefs_.stop(), 0);
  varvefs_.options().idle_s = 2;
  varvefs_.start();
  // A kernel mount made anew has another device number as long as the old one exists.
  struct stat first;
  UniqueFd file;
  {
    ControlClient client = varvefs_.connect();
    const auto answer = varvefs_.attach(client, "app:v1", "default", true);
    file = open_file_at(answer.fds.at(0).get(), "large/text", O_RDONLY).value();
    ASSERT_EQ(fstat(file.get(), &first), 0);
  }
  wait_for_status("attachments", 0);
  EXPECT_EQ(status("layers"), 1u);
  {
    ControlClient client = varvefs_.connect();
    const auto answer = varvefs_.attach(client, "app:v1", "default", true);
    struct stat again;
    ASSERT_EQ(fstatat(answer.fds.at(0).get(), "large/text", &again, 0), 0);
    EXPECT_EQ(again.st_dev, first.st_dev);
  }
  file.reset();
  wait_for_status("views", 0);
  EXPECT_TRUE(std::filesystem::is_empty(varvefs_.mountpoint()));
}

TEST_P(FsAttachTest, AThousandAttachesLeaveNeitherDescriptorsNorMemory) {
  const auto cycle = [&](int count) {
    for (int i = 0; i < count; ++i) {
      ControlClient client = varvefs_.connect();
      const auto answer = varvefs_.attach(client, "app:v1", "default", i % 4 == 0);
      struct stat st;
      ASSERT_EQ(stat((VarvefsProcess::tree_of(answer) + "/large/text").c_str(), &st), 0);
    }
    wait_for_status("views", 0);
  };
  cycle(100);
  const size_t descriptors = descriptor_count(varvefs_.pid());
  const uint64_t resident = resident_kb(varvefs_.pid());
  cycle(1000);
  EXPECT_LE(descriptor_count(varvefs_.pid()), descriptors + 2);
  // A sanitizer's own memory grows with every allocation that was ever made.
  if (!kIsSanitized) {
    EXPECT_LE(resident_kb(varvefs_.pid()), resident + 4096);
  }
}

TEST_P(FsAttachTest, AClientThatGoesInTheMiddleOfAnAttachLeavesNothing) {
  const std::string body = json::serialize(json::object{
      {"store", "file://" + varvefs_.store_directory()}, {"image", "app:v1"}, {"mounts", true}});
  for (int i = 0; i < 50; ++i) {
    ControlClient client = varvefs_.connect();
    ASSERT_TRUE(client.send("POST", "/v1/attach", body));
  }
  varvefs_.switches().hangs = true;
  {
    ControlClient client = varvefs_.connect();
    ASSERT_TRUE(client.send("POST", "/v1/attach", body));
  }
  varvefs_.switches().hangs = false;
  wait_for_status("attachments", 0);
  wait_for_status("views", 0);
}

TEST_P(FsAttachTest, AKeptNamespaceIsFoundByItsRecord) {
  const std::string records = varvefs_.options().run_directory + "/namespaces/";
  ControlClient client = varvefs_.connect();
  for (const char* name : {"", ".", "..", "a/b"}) {
    EXPECT_EQ(client.post("/v1/namespaces", {{"name", name}}).value().status, 400) << name;
  }
  EXPECT_EQ(client.post("/v1/namespaces", {{"name", "mine"}}).value().status, 200);
  char place[64] = "";
  ASSERT_GT(readlink((records + "mine").c_str(), place, sizeof place - 1), 0);
  EXPECT_TRUE(std::string_view(place).starts_with("/proc/" + std::to_string(varvefs_.pid()) + "/"));
  struct stat own;
  struct stat kept;
  ASSERT_EQ(stat("/proc/self/ns/mnt", &own), 0);
  ASSERT_EQ(stat((records + "mine").c_str(), &kept), 0);
  EXPECT_EQ(kept.st_ino, own.st_ino);
  // Somebody may be about to open it: it stays where it is.
  EXPECT_EQ(client.post("/v1/namespaces", {{"name", "mine"}}).value().status, 200);
  char again[64] = "";
  ASSERT_GT(readlink((records + "mine").c_str(), again, sizeof again - 1), 0);
  EXPECT_STREQ(again, place);
  for (int i = 1; i < 16; ++i) {
    EXPECT_EQ(client.post("/v1/namespaces", {{"name", std::to_string(i)}}).value().status, 200);
  }
  EXPECT_EQ(client.post("/v1/namespaces", {{"name", "one too many"}}).value().status, 409);
  // What a killed one recorded is not taken for the next one's.
  varvefs_.kill();
  EXPECT_EQ(lstat((records + "mine").c_str(), &kept), 0);
  varvefs_.start();
  EXPECT_NE(lstat((records + "mine").c_str(), &kept), 0);
}

TEST_P(FsAttachTest, AnAttachedImageIsAttachedAgainWhileItsStoreHangs) {
  ControlClient first = varvefs_.connect();
  ASSERT_EQ(varvefs_.attach(first, "app:v1", "default", true).fds.size(), 1u);
  // Not every filesystem can tell without blocking; where it cannot, the store is asked as ever.
  const std::string key = chunkstore::ref_key(chunkstore::parse_ref("app:v1").value());
  varvefs_.switches().hangs_all = varvefs_.store().get_at_once(key, 100).has_value();
  ControlClient second = varvefs_.connect();
  const auto again = varvefs_.attach(second, "app:v1", "default", true);
  EXPECT_EQ(again.fds.size(), 1u);
  // Another domain has nothing to start from, and has to ask.
  varvefs_.switches().hangs_all = true;
  ControlClient third = varvefs_.connect();
  ASSERT_TRUE(
      third.send("POST", "/v1/attach",
                 json::serialize(json::object{{"store", "file://" + varvefs_.store_directory()},
                                              {"image", "app:v1"},
                                              {"domain", "other"},
                                              {"mounts", true}})));
  for (int i = 0; i < 500 && varvefs_.switches().hanging_reads == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_GT(varvefs_.switches().hanging_reads, 0u);
  varvefs_.switches().hangs_all = false;
  EXPECT_EQ(third.receive().value().status, 200);
}

TEST_P(FsAttachTest, ARefThatMovedIsHeededAtOnce) {
  // The store is the other tests', too: a ref of its own.
  const std::string key = chunkstore::ref_key(chunkstore::parse_ref("moving:v1").value());
  const auto point_at = [&](const Digest& image) {
    const std::string pointer = chunkstore::encode_pointer(image);
    ASSERT_TRUE(varvefs_.store().replace(key, as_bytes(pointer), kNoDeadline));
  };
  ControlClient client = varvefs_.connect();
  const auto image = varvefs_.attach(client, "app:v1").body.at("image");
  point_at(Digest::from_hex(std::string_view(image.as_string())).value());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(varvefs_.attach(client, "moving:v1").body.at("image"), image);
  }
  point_at(sha256(as_bytes("no image")));
  const auto after = client.post(
      "/v1/attach", {{"store", "file://" + varvefs_.store_directory()}, {"image", "moving:v1"}});
  EXPECT_EQ(after.value().status, 404);
  EXPECT_TRUE(varvefs_.store().remove(key, kNoDeadline));
}

TEST_P(FsAttachTest, ManyAttachesOfOneLayerAtTheSameTimeShareIt) {
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&] {
      ControlClient client = varvefs_.connect();
      const auto answer = varvefs_.attach(client, "app:v1", "default", true);
      if (answer.fds.size() == 1 && status("layers") == 1) ++good;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 16);
  wait_for_status("views", 0);
}

TEST_P(FsAttachTest, BadRequestsAreRefusedWithTheirReason) {
  ControlClient client = varvefs_.connect();
  const std::string store = "file://" + varvefs_.store_directory();
  const auto code = [](const ControlClient::Answer& answer) {
    return std::string(answer.body.at("error").at("code").as_string());
  };
  const auto missing =
      client.post("/v1/attach", {{"store", store}, {"image", "nothing:here"}}).value();
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(code(missing), "not found");
  EXPECT_EQ(client.post("/v1/attach", {{"store", store}, {"image", "app:v1"}, {"domain", "../up"}})
                .value()
                .status,
            400);
  EXPECT_EQ(client.post("/v1/attach", {{"store", store}, {"image", "app:v1"}, {"colour", "red"}})
                .value()
                .status,
            400);
  EXPECT_EQ(client.post("/v1/attach", {{"store", "file:///does/not/exist"}, {"image", "app:v1"}})
                .value()
                .status,
            404);
  EXPECT_EQ(client.request("POST", "/v1/attach", "no json").value().status, 400);
  EXPECT_EQ(client.get("/v1/nothing").value().status, 404);
  // The connection is still good.
  EXPECT_EQ(client.get("/v1/status").value().status, 200);
}

TEST_P(FsAttachTest, NothingThatWasAskedForIsIgnored) {
  ControlClient client = varvefs_.connect();
  const auto expect_refused = [&](const char* method, const std::string& target,
                                  const std::string& body, const std::string& message) {
    const auto answer = client.request(method, target, body).value();
    EXPECT_EQ(answer.status, 400) << target;
    EXPECT_EQ(answer.body.at("error").at("code").as_string(), "invalid argument");
    EXPECT_EQ(std::string(answer.body.at("error").at("message").as_string()), message);
  };
  expect_refused("GET", "/v1/status?verbose", "", "unknown query parameter 'verbose'");
  expect_refused("GET", "/v1/layers?layer=x", "", "unknown query parameter 'layer'");
  expect_refused("GET", "/v1/stats?layers=x", "", "unknown query parameter 'layers'");
  expect_refused("GET", "/v1/stats?layer=x&layer=y", "", "query parameter 'layer' twice");
  expect_refused("GET", "/v1/stats/files?=x", "", "unknown query parameter ''");
  expect_refused("POST", "/v1/detach?lease=x", "{}", "unknown query parameter 'lease'");
  expect_refused("POST", "/v1/detach", R"({"lease":"x","colour":"red"})",
                 "unknown member 'colour'");
  expect_refused("GET", "/v1/status", "{}", "'GET /v1/status' takes no body");
  EXPECT_EQ(client.get("/v1/nothing?verbose").value().status, 404);
}

TEST_P(FsAttachTest, StatisticsCountPagesAndStoredBytesAndNameTheFiles) {
  ControlClient client = varvefs_.connect();
  const auto answer = varvefs_.attach(client, "app:v1");
  const std::string id = shared_.layer.id.hex();
  const auto layer_stats = [&] {
    return client.get("/v1/stats?layer=" + id).value().body.at("layers").at(0);
  };
  const uint64_t fetched_by_attach = layer_stats().at("fetched_bytes").to_number<uint64_t>();
  EXPECT_GT(fetched_by_attach, 0u);
  EXPECT_EQ(layer_stats().at("touched_bytes").to_number<uint64_t>(), 0u);
  ASSERT_TRUE(read_file(VarvefsProcess::tree_of(answer) + "/large/noise", 1 << 30));
  const auto stats = layer_stats();
  // 3,000,001 bytes of noise, which does not compress.
  EXPECT_GE(stats.at("fetched_bytes").to_number<uint64_t>(), fetched_by_attach + 3'000'001);
  EXPECT_EQ(stats.at("touched_bytes").to_number<uint64_t>(), align_up(3'000'001, 4096));
  const auto files = client.get("/v1/stats/files?layer=" + id).value().body;
  ASSERT_EQ(files.at("files").as_array().size(), 1u);
  EXPECT_EQ(files.at("files").at(0).at("path").as_string(), "large/noise");
  EXPECT_EQ(files.at("files").at(0).at("touched_bytes").to_number<uint64_t>(),
            align_up(3'000'001, 4096));
  EXPECT_EQ(files.at("other_bytes").to_number<uint64_t>(), 0u);
}

VARVE_FS_TEST_SUITE(FsAttachTest);

}  // namespace
}  // namespace varve::test
