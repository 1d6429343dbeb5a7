#include "chunkstore/source/posix_acl.h"

#include <gtest/gtest.h>

#include "base/bytes.h"

namespace varve::chunkstore {
namespace {

std::string acl_bytes(std::initializer_list<std::tuple<uint16_t, uint16_t, uint32_t>> entries) {
  Bytes bytes;
  append_le<uint32_t>(bytes, 2);
  for (const auto& [tag, permissions, id] : entries) {
    append_le(bytes, tag);
    append_le(bytes, permissions);
    append_le(bytes, id);
  }
  return std::string(as_text(bytes));
}

TEST(PosixAclTest, TextInAnyOrderBecomesTheBytesThatTheKernelReturns) {
  const auto acl =
      parse_acl_text("other::r--\nmask::r-x\nuser:2000:rwx\nuser:10:r--\ngroup::r-x\nuser::rw-");
  ASSERT_TRUE(acl) << acl.error().to_string();
  EXPECT_EQ(acl->xattr, acl_bytes({{1, 6, 0xffffffff},
                                   {2, 4, 10},
                                   {2, 7, 2000},
                                   {4, 5, 0xffffffff},
                                   {16, 5, 0xffffffff},
                                   {32, 4, 0xffffffff}}));
  EXPECT_FALSE(acl->is_minimal);
  EXPECT_EQ(acl->mode_bits, 0654);
}

TEST(PosixAclTest, ThreeEntriesAreTheModeAndNothingElse) {
  const auto acl = parse_acl_text("user::rwx,group::r-x,other::---");
  ASSERT_TRUE(acl);
  EXPECT_TRUE(acl->is_minimal);
  EXPECT_EQ(acl->mode_bits, 0750);
}

TEST(PosixAclTest, StarsFourthFieldWinsOverTheName) {
  const auto acl = parse_acl_text(
      "user::rw-\nuser:nobody:r--:4294967294\ngroup::r--\nmask::r--\t#effective:r--\nother::---\n");
  ASSERT_TRUE(acl) << acl.error().to_string();
  EXPECT_EQ(acl->xattr.substr(12, 8), acl_bytes({{2, 4, 4294967294}}).substr(4));
}

TEST(PosixAclTest, NamesAreNotLookedUpOnThisHost) {
  const auto acl = parse_acl_text("user::rw-\nuser:root:r--\ngroup::r--\nmask::r--\nother::---");
  ASSERT_FALSE(acl);
  EXPECT_NE(acl.error().to_string().find("user:root:r--"), std::string::npos);
}

TEST(PosixAclTest, AclsThatTheKernelWouldRefuseAreRefused) {
  for (const char* text :
       {"", "user::rwx", "user::rwx,group::rwx,other::rwx,other::rwx",
        "user::rwx,group::rwx,other::rwx,user:1:rwx",
        "user::rwx,group::rwx,other::rwx,mask::rwx,user:1:rwx,user:1:r--",
        "user::rwx,group::rwx,other::rwz", "owner::rwx,group::rwx,other::rwx", "user",
        "user::rwx,group::rwx,other::rwx,mask::rwx,user:4294967295:r--"}) {
    EXPECT_FALSE(parse_acl_text(text)) << text;
  }
}

TEST(PosixAclTest, BytesAndTextTurnIntoEachOther) {
  const std::string bytes = acl_bytes({{1, 7, 0xffffffff},
                                       {2, 5, 1234},
                                       {4, 0, 0xffffffff},
                                       {8, 4, 77},
                                       {16, 5, 0xffffffff},
                                       {32, 0, 0xffffffff}});
  const auto text = format_acl_text(bytes);
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, "user::rwx\nuser:1234:r-x\ngroup::---\ngroup:77:r--\nmask::r-x\nother::---\n");
  EXPECT_EQ(parse_acl_text(*text)->xattr, bytes);
}

TEST(PosixAclTest, BytesThatTextCannotHoldGiveNoText) {
  EXPECT_FALSE(format_acl_text(""));
  EXPECT_FALSE(format_acl_text("abcde"));
  EXPECT_FALSE(format_acl_text(acl_bytes({{1, 7, 0xffffffff}})));
  EXPECT_FALSE(format_acl_text(acl_bytes({{1, 9, 0xffffffff}, {4, 7, 0xffffffff}, {32, 7, 0}})));
  // An id where none belongs would be lost.
  EXPECT_FALSE(format_acl_text(acl_bytes({{1, 7, 5}, {4, 7, 0xffffffff}, {32, 7, 0xffffffff}})));
}

}  // namespace
}  // namespace varve::chunkstore
