#include "fs/control/control_json.h"

#include <gtest/gtest.h>

namespace varve::fs {
namespace {

ErrorCode code_of(const std::string& body) {
  return parse_attach_request(body).error().code();
}

TEST(ControlJsonTest, ParsesAnAttachWithEveryMember) {
  const auto request = parse_attach_request(
      R"({"store":"file:///s","image":"a:b","layers":["x","y"],"domain":"d","mounts":true,"keep":true})");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->store, "file:///s");
  EXPECT_EQ(request->image, "a:b");
  EXPECT_EQ(request->layers, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(request->domain, "d");
  EXPECT_TRUE(request->wants_mounts);
  EXPECT_TRUE(request->keeps);
}

TEST(ControlJsonTest, TheDomainIsDefaultUnlessItIsGiven) {
  EXPECT_EQ(parse_attach_request(R"({"store":"s","image":"a"})")->domain, "default");
}

TEST(ControlJsonTest, RefusesWhatIsNoAttach) {
  EXPECT_EQ(code_of(""), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of("[]"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(R"({"image":"a"})"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(R"({"store":"s"})"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(R"({"store":1,"image":"a"})"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(R"({"store":"s","image":"a","layers":"x"})"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(R"({"store":"s","layers":[1]})"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(R"({"store":"s","image":"a","mounts":"yes"})"), ErrorCode::kInvalidArgument);
}

TEST(ControlJsonTest, RefusesUnknownMembersByTheirName) {
  const auto expect_named = [](const Status& parsed) {
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(parsed.error().to_string(), "unknown member 'unheard'");
  };
  const auto status_of = [](const auto& result) {
    return result ? Status() : tl::unexpected(result.error());
  };
  expect_named(status_of(parse_attach_request(R"({"store":"s","image":"a","unheard":1})")));
  expect_named(status_of(parse_detach_request(R"({"lease":"l","unheard":1})")));
  expect_named(status_of(parse_namespace_request(R"({"name":"n","unheard":1})")));
}

TEST(ControlJsonTest, ADomainIsOneDirectoryName) {
  for (const char* domain : {"", ".", "..", ".hidden", "a/b", "a b", "\\u0000"}) {
    EXPECT_EQ(code_of(std::string(R"({"store":"s","image":"a","domain":")") + domain + "\"}"),
              ErrorCode::kInvalidArgument)
        << domain;
  }
  EXPECT_EQ(code_of(R"({"store":"s","image":"a","domain":")" + std::string(65, 'x') + "\"}"),
            ErrorCode::kInvalidArgument);
  EXPECT_TRUE(parse_attach_request(R"({"store":"s","image":"a","domain":"Team-1_x.y"})"));
}

TEST(ControlJsonTest, NamesThatAreNoUtf8AreShownQuoted) {
  TouchedFiles files;
  files.files.push_back({"plain", 1, 4096});
  files.files.push_back({"bad\xff", 1, 4096});
  const std::string text = touched_files_json({}, files);
  EXPECT_NE(text.find(R"("path":"plain")"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("quoted":true)"), std::string::npos) << text;
  EXPECT_EQ(text.find('\xff'), std::string::npos);
}

TEST(ControlJsonTest, AnErrorCarriesItsNameAndWholeChain) {
  Error error(ErrorCode::kNotFound, "cause");
  error.with_context("doing");
  EXPECT_EQ(error_json(error), R"({"error":{"code":"not found","message":"doing: cause"}})");
}

}  // namespace
}  // namespace varve::fs
