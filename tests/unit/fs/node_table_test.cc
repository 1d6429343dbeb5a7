#include "fs/view/node_table.h"

#include <gtest/gtest.h>

#include "base/file_io.h"
#include "base/temp_dir.h"
#include "fs/fuse/protocol.h"
#include "tests/support/fs/built_layer.h"

namespace varve::fs {
namespace {

class NodeTableTest : public ::testing::Test {
 protected:
  NodeTableTest() {
    for (int i = 0; i < 2; ++i) {
      const std::string tree = dir_.path() + "/source" + std::to_string(i);
      test::must(make_directories(tree + "/directory" + std::to_string(i)));
      const auto built = test::put_directory(*store_, tree);
      auto source = LayerSource::open(session_, store_, built.id, dir_.path(), kNoDeadline).value();
      layers_.push_back(AttachedLayer::open(std::move(source), dir_.path(), kNoDeadline).value());
    }
  }
  static Node root() {
    Node node;
    node.id = fuse::kRootNodeId;
    return node;
  }

  TempDir dir_ = TempDir::create("varve-node-table-").value();
  std::shared_ptr<chunkstore::Store> store_ =
      chunkstore::open_store(dir_.path() + "/store", true).value();
  std::shared_ptr<StoreSession> session_ = std::make_shared<StoreSession>(
      "store", [this](const std::string&) { return store_; }, 1, [] { return nullptr; });
  std::vector<std::shared_ptr<AttachedLayer>> layers_;
};

TEST_F(NodeTableTest, NodeIdsDependOnDomainAndLayerOnly) {
  NodeTable first;
  NodeTable second;
  second.attach("other", layers_[1]).value();
  EXPECT_EQ(first.attach("a", layers_[0]).value()->first_node_id,
            second.attach("a", layers_[0]).value()->first_node_id);
  EXPECT_NE(first.attach("b", layers_[0]).value()->first_node_id,
            first.attach("a", layers_[0]).value()->first_node_id);
}

TEST_F(NodeTableTest, FindsEveryNodeOfAViewAndNothingBeside) {
  NodeTable nodes;
  const auto view = nodes.attach("a", layers_[0]).value();
  const uint64_t first = view->first_node_id;
  EXPECT_EQ(nodes.find(first)->kind, Node::Kind::kLayer);
  EXPECT_EQ(nodes.find(first + 1)->kind, Node::Kind::kImage);
  EXPECT_EQ(nodes.find(view->tree_node_id(36))->nid, 36u);
  EXPECT_FALSE(nodes.find(first - 1));
  EXPECT_FALSE(nodes.find(first + LayerView::node_count(*layers_[0])));
  EXPECT_EQ(nodes.find(fuse::kRootNodeId)->kind, Node::Kind::kRoot);
  EXPECT_FALSE(nodes.find(0));
  EXPECT_FALSE(nodes.find(2));
}

TEST_F(NodeTableTest, AViewLivesUntilTheKernelForgetsIt) {
  NodeTable nodes;
  const auto view = nodes.attach("a", layers_[0]).value();
  const auto domain = nodes.look_up(root(), "a");
  ASSERT_TRUE(domain);
  const auto layer = nodes.look_up(*domain, layers_[0]->id().hex());
  ASSERT_TRUE(layer);
  EXPECT_TRUE(nodes.detach(view).was_last);
  // No new user finds it, but who has it keeps it.
  EXPECT_FALSE(nodes.look_up(*domain, layers_[0]->id().hex()));
  EXPECT_TRUE(nodes.children(*domain).empty());
  EXPECT_TRUE(nodes.children(root()).empty());
  EXPECT_TRUE(nodes.find(layer->id));
  nodes.forget(layer->id, 1);
  EXPECT_FALSE(nodes.find(layer->id));
  EXPECT_TRUE(nodes.find(domain->id));
  nodes.forget(domain->id, 1);
  EXPECT_FALSE(nodes.find(domain->id));
}

TEST_F(NodeTableTest, AttachesAreCounted) {
  NodeTable nodes;
  EXPECT_EQ(nodes.attach_again("a", layers_[0]->id()), nullptr);
  const auto view = nodes.attach("a", layers_[0]).value();
  EXPECT_EQ(nodes.attach_again("a", layers_[0]->id()), view);
  EXPECT_EQ(nodes.attach_again("b", layers_[0]->id()), nullptr);
  EXPECT_FALSE(nodes.detach(view).was_last);
  const auto last = nodes.detach(view);
  EXPECT_TRUE(last.was_last);
  EXPECT_TRUE(last.domain_is_empty);
  EXPECT_EQ(nodes.view_count(), 0u);
}

TEST_F(NodeTableTest, RefusesALayerWhoseNodesWouldMeetAnothers) {
  NodeTable nodes([](std::string_view, const Digest&) { return uint64_t{1} << 63; });
  nodes.attach("a", layers_[0]).value();
  EXPECT_EQ(nodes.attach("a", layers_[1]).error().code(), ErrorCode::kInternal);
  EXPECT_EQ(nodes.attach("b", layers_[1]).error().code(), ErrorCode::kInternal);
  EXPECT_EQ(nodes.view_count(), 1u);
  EXPECT_EQ(nodes.children(root()).size(), 1u);
}

TEST_F(NodeTableTest, ALayerIsSharedByDomains) {
  NodeTable nodes;
  EXPECT_EQ(nodes.find_layer(layers_[0]->id(), *store_), nullptr);
  nodes.attach("a", layers_[0]).value();
  EXPECT_EQ(nodes.find_layer(layers_[0]->id(), *store_), layers_[0]);
  EXPECT_EQ(nodes.find_layer(layers_[1]->id(), *store_), nullptr);
}

}  // namespace
}  // namespace varve::fs
