// Clients of the control socket that lie, flood it, or go in the middle.
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "fs_test.h"

namespace varve::fs {
namespace {

namespace json = boost::json;
using test::ControlClient;

class FsControlTest : public test::FsTest {
 protected:
  void SetUp() override { varvefs_.start(); }

  UniqueFd connect() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = varvefs_.options().run_directory + "/control.sock";
    std::ranges::copy(path, address.sun_path);
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      return UniqueFd();
    }
    return socket;
  }

  /// What comes until the other side closes, or `end` has come.
  static std::string receive(int socket, const std::string& end = "\n\n\n") {
    std::string text;
    char buffer[4096];
    while (text.find(end) == std::string::npos) {
      const ssize_t n = ::recv(socket, buffer, sizeof buffer, 0);
      if (n <= 0) break;
      text.append(buffer, static_cast<size_t>(n));
    }
    return text;
  }

  /// The first line of the answer to `request`; "" when the connection was closed without one.
  std::string answer_to(const std::string& request) {
    const UniqueFd socket = connect();
    // The rest of what is refused need not be taken.
    (void)::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL);
    const std::string text = receive(socket.get(), "\r\n");
    return text.substr(0, text.find("\r\n"));
  }

  size_t descriptor_count() {
    const auto directory = "/proc/" + std::to_string(varvefs_.pid()) + "/fd";
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(directory), {}));
  }

  /// Waits until the server has closed what belongs to connections that ended.
  void wait_for_descriptors(size_t count) {
    while (descriptor_count() > count) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  bool answers() { return varvefs_.connect().get("/v1/status").value().status == 200; }

  static constexpr char kStatus[] = "GET /v1/status HTTP/1.1\r\n\r\n";
};

TEST_P(FsControlTest, WhatIsNoAcceptableHttpIsRefusedAndHarmsNobody) {
  const std::string post = "POST /v1/attach HTTP/1.1\r\n";
  const std::string bad = "HTTP/1.1 400 Bad Request";
  EXPECT_EQ(answer_to("GET /v1/status HTTP/1.1\r\nA: " + std::string(100'000, 'b')), bad);
  EXPECT_EQ(answer_to(post + "Content-Length: 99999999999\r\n\r\nx"), bad);
  EXPECT_EQ(answer_to(post + "Content-Length: -1\r\n\r\nx"), bad);
  EXPECT_EQ(answer_to(post + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"), bad);
  EXPECT_EQ(answer_to(post + "Content-Length: 900000\r\n\r\n" + std::string(900'000, '[')), bad);
  EXPECT_EQ(answer_to(std::string("GET /v1/\0status HTTP/1.1\r\n\r\n", 28)), bad);
  EXPECT_EQ(answer_to(std::string(1000, '\xff')), bad);
  EXPECT_EQ(answer_to("GET /\r\n"), bad);
  // So many headers that they are refused while they come: the answer may be lost.
  std::string many = "GET /v1/status HTTP/1.1\r\n";
  for (int i = 0; i < 50'000; ++i) many += "A: b\r\n";
  answer_to(many);
  EXPECT_TRUE(answers());
}

TEST_P(FsControlTest, RequestsThatComeTogetherAreAnsweredOneByOne) {
  const UniqueFd socket = connect();
  std::string requests;
  for (int i = 0; i < 100; ++i) requests += kStatus;
  requests += "GET /v1/status HTTP/1.1\r\nConnection: close\r\n\r\n";
  ASSERT_EQ(::send(socket.get(), requests.data(), requests.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(requests.size()));
  const std::string text = receive(socket.get());
  size_t count = 0;
  for (size_t at = 0; (at = text.find("HTTP/1.1 200 OK", at)) != std::string::npos; ++at) ++count;
  EXPECT_EQ(count, 101u);
}

TEST_P(FsControlTest, HalfRequestsHoldUpNobodyAndGoWithTheirConnections) {
  const size_t before = descriptor_count();
  std::vector<UniqueFd> sockets;
  const std::string request = "POST /v1/attach HTTP/1.1\r\nContent-Length: 100000\r\n\r\n{";
  for (size_t i = 0; i < 1000; ++i) {
    sockets.push_back(connect());
    ASSERT_TRUE(sockets.back());
    (void)::send(sockets.back().get(), request.data(), i % request.size(), MSG_NOSIGNAL);
  }
  EXPECT_TRUE(answers());
  sockets.clear();
  wait_for_descriptors(before);
}

TEST_P(FsControlTest, DescriptorsThatAClientSendsAreNotKept) {
  const size_t before = descriptor_count();
  for (int round = 0; round < 20; ++round) {
    const UniqueFd socket = connect();
    int fds[200];
    std::ranges::fill(fds, socket.get());
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)]{};
    iovec part{const_cast<char*>(kStatus), sizeof kStatus - 1};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof fds);
    std::memcpy(CMSG_DATA(rights), fds, sizeof fds);
    ASSERT_GT(::sendmsg(socket.get(), &message, MSG_NOSIGNAL), 0);
    if (round % 2 == 0) receive(socket.get(), "\r\n\r\n");
  }
  wait_for_descriptors(before);
}

TEST_P(FsControlTest, AClientThatReadsNoAnswerBlocksOnlyItself) {
  const UniqueFd socket = connect();
  std::string requests;
  for (int i = 0; i < 1000; ++i) requests += kStatus;
  // Until neither side's buffer takes more.
  while (::send(socket.get(), requests.data(), requests.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_TRUE(answers());
}

TEST_P(FsControlTest, OutOfDescriptorsItGoesOnWhenThereAreSomeAgain) {
  const size_t before = descriptor_count();
  rlimit limit{};
  ASSERT_EQ(::prlimit(varvefs_.pid(), RLIMIT_NOFILE, nullptr, &limit), 0);
  const rlimit low{before + 50, limit.rlim_max};
  ASSERT_EQ(::prlimit(varvefs_.pid(), RLIMIT_NOFILE, &low, nullptr), 0);
  std::vector<UniqueFd> sockets;
  for (int i = 0; i < 200; ++i) {
    sockets.push_back(connect());
    (void)::send(sockets.back().get(), kStatus, sizeof kStatus - 1, MSG_NOSIGNAL);
  }
  // Those it could take have their answer.
  EXPECT_NE(receive(sockets.front().get(), "\r\n\r\n"), "");
  sockets.clear();
  EXPECT_TRUE(answers());
  ASSERT_EQ(::prlimit(varvefs_.pid(), RLIMIT_NOFILE, &limit, nullptr), 0);
  ControlClient client = varvefs_.connect();
  varvefs_.attach(client, "app:v1");
}

TEST_P(FsControlTest, NeitherClientsNorLayersTakeTheDescriptorsThatReadsNeed) {
  const std::string other_store = varvefs_.scratch() + "/other";
  std::filesystem::create_directory(varvefs_.scratch() + "/source");
  const auto store = chunkstore::open_store(other_store, true).value();
  const test::TestLayer layer = test::put_directory(*store, varvefs_.scratch() + "/source");
  test::put_image(*store, {layer.id}, "other:v1");
  ControlClient client = varvefs_.connect();
  const auto answer = varvefs_.attach(client, "app:v1");
  const std::string image = test::VarvefsProcess::image_of(answer);
  const size_t before = descriptor_count();
  rlimit limit{};
  ASSERT_EQ(::prlimit(varvefs_.pid(), RLIMIT_NOFILE, nullptr, &limit), 0);
  const rlimit low{before + 50, limit.rlim_max};
  ASSERT_EQ(::prlimit(varvefs_.pid(), RLIMIT_NOFILE, &low, nullptr), 0);
  std::vector<UniqueFd> sockets;
  for (int i = 0; i < 100; ++i) sockets.push_back(connect());
  // Longer than it waits for descriptors, twice.
  std::this_thread::sleep_for(std::chrono::milliseconds(2200));
  const auto size = answer.body.at("layers").at(0).at("image_bytes").to_number<uint64_t>();
  EXPECT_EQ(test::direct_read_errno(image, 0, size / test::kPage * test::kPage), 0)
      << varvefs_.log();
  const auto one_more =
      client.post("/v1/attach", {{"store", "file://" + varvefs_.store_directory()},
                                 {"image", "app:v1"},
                                 {"domain", "other"}});
  EXPECT_EQ(one_more.value().status, 200) << "a layer that is attached already costs none";
  const auto new_layer =
      client.post("/v1/attach", {{"store", "file://" + other_store}, {"image", "other:v1"}});
  EXPECT_EQ(new_layer.value().status, 409);
  EXPECT_NE(json::serialize(new_layer->body).find("too few descriptors"), std::string::npos);
  sockets.clear();
  EXPECT_TRUE(answers());
  ASSERT_EQ(::prlimit(varvefs_.pid(), RLIMIT_NOFILE, &limit, nullptr), 0);
}

TEST_P(FsControlTest, AnAttachFromAStoreThatHangsIsAnsweredByItsDeadline) {
  varvefs_.stop();
  varvefs_.options().attach_deadline_ms = 300;
  varvefs_.start();
  varvefs_.switches().hangs = true;
  ControlClient client = varvefs_.connect();
  const json::value attach = {{"store", "file://" + varvefs_.store_directory()},
                              {"image", "app:v1"}};
  const auto answer = client.post("/v1/attach", attach);
  ASSERT_TRUE(answer) << answer.error().to_string();
  EXPECT_EQ(answer->status, 504);
  // The connection is still good, and so are others.
  EXPECT_EQ(client.get("/v1/status").value().status, 200);
  EXPECT_TRUE(answers());
  varvefs_.switches().hangs = false;
  EXPECT_EQ(client.post("/v1/attach", attach).value().status, 200);
}

VARVE_FS_TEST_SUITE(FsControlTest);

}  // namespace
}  // namespace varve::fs
