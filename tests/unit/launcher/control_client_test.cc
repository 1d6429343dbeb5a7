#include "launcher/control_client.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <thread>

#include "base/temp_dir.h"
#include "launcher/fd_message.h"

namespace varve::launcher {
namespace {

TEST(ResponseHeadTest, StatusAndLengthAreRead) {
  const auto head =
      parse_response_head("HTTP/1.1 404 Not Found\r\nX: y\r\ncontent-LENGTH:  12 \r\n\r\nbody");
  ASSERT_TRUE(head && *head);
  EXPECT_EQ((*head)->status, 404);
  EXPECT_EQ((*head)->body_size, 12u);
}

TEST(ResponseHeadTest, AnIncompleteHeadWaitsForMore) {
  const std::string whole = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto head = parse_response_head(whole.substr(0, size));
    ASSERT_TRUE(head) << size;
    EXPECT_FALSE(*head) << size;
  }
}

TEST(ResponseHeadTest, MalformedHeadsAreRefused) {
  for (const char* text :
       {"HTTP/2 200 OK\r\n\r\n", "nonsense\r\n\r\n", "HTTP/1.1 2x0 OK\r\nContent-Length: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n"}) {
    const auto head = parse_response_head(text);
    ASSERT_FALSE(head) << text;
    EXPECT_EQ(head.error().code(), ErrorCode::kCorruption);
  }
  EXPECT_FALSE(parse_response_head(std::string(1 << 20, 'x'))) << "a head without an end";
}

/// A server that answers the first connection with `parts`, one message each, and closes.
class ControlClientTest : public testing::Test {
 protected:
  void serve(std::vector<std::string> parts, int fd = -1) {
    directory_.emplace(std::move(*TempDir::create("varve-client-")));
    path_ = directory_->path() + "/s";
    listener_.reset(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::listen(listener_.get(), 1), 0);
    server_ = std::thread([this, parts = std::move(parts), fd] {
      const UniqueFd connection(::accept(listener_.get(), nullptr, nullptr));
      char buffer[4096];
      (void)::read(connection.get(), buffer, sizeof buffer);
      for (size_t i = 0; i < parts.size(); ++i) {
        (void)send_message(connection.get(), parts[i].data(), parts[i].size(),
                           {&fd, i == 0 && fd >= 0 ? size_t{1} : size_t{0}});
      }
    });
  }
  void TearDown() override {
    if (server_.joinable()) server_.join();
  }
  Result<ControlClient::Response> ask() {
    VARVE_ASSIGN(ControlClient client, ControlClient::connect(path_, 5000));
    VARVE_TRY(client.send("GET", "/", ""));
    return client.receive();
  }

  std::optional<TempDir> directory_;
  std::string path_;
  UniqueFd listener_;
  std::thread server_;
};

TEST_F(ControlClientTest, ABodyInPiecesIsPutTogether) {
  serve({"HTTP/1.1 200 OK\r\nContent-Le", "ngth: 6\r\n\r\nabc", "def"});
  const auto response = ask();
  ASSERT_TRUE(response) << response.error().to_string();
  EXPECT_EQ(response->body, "abcdef");
}

TEST_F(ControlClientTest, DescriptorsComeAlong) {
  serve({"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"}, STDOUT_FILENO);
  const auto response = ask();
  ASSERT_TRUE(response) << response.error().to_string();
  ASSERT_EQ(response->fds.size(), 1u);
}

TEST_F(ControlClientTest, AnInterimResponseIsPassedOver) {
  serve({"HTTP/1.1 103 Early Hints\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"},
        STDOUT_FILENO);
  const auto response = ask();
  ASSERT_TRUE(response) << response.error().to_string();
  EXPECT_EQ(response->body, "{}");
  EXPECT_TRUE(response->fds.empty());
}

TEST_F(ControlClientTest, ItKnowsWhoListens) {
  serve({"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"});
  auto client = ControlClient::connect(path_, 5000);
  ASSERT_TRUE(client);
  EXPECT_EQ(client->peer_pid(), ::getpid());
  ASSERT_TRUE(client->send("GET", "/", ""));
  EXPECT_TRUE(client->receive());
}

TEST_F(ControlClientTest, AConnectionCutInTheMiddleIsAnError) {
  serve({"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"});
  const auto response = ask();
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().code(), ErrorCode::kUnavailable);
}

TEST_F(ControlClientTest, AnErrorKeepsItsCodeAndMessage) {
  const std::string body = R"({"error":{"code":"busy","message":"attaching: in use"}})";
  serve({"HTTP/1.1 409 X\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body});
  const auto response = ask();
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().code(), ErrorCode::kBusy);
  EXPECT_EQ(response.error().to_string(), "attaching: in use");
}

TEST_F(ControlClientTest, NobodyListeningIsUnavailable) {
  const auto client = ControlClient::connect("/nonexistent/socket", 100);
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code(), ErrorCode::kUnavailable);
  EXPECT_FALSE(ControlClient::connect(std::string(200, 'x'), 100));
}

}  // namespace
}  // namespace varve::launcher
