// Why did it wait: the edges of tasks, and whole graphs as DOT and JSON.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine_support.hpp"

namespace strata::test {
namespace {

class GraphExport : public testing::Test {
 protected:
  /// Every hazard once, with the lanes held so that each edge was waited for.
  strata::Run every_hazard() {
    const strata::Run run = engine_.submit(
        [&](Orchestration& o) {
          const LaneHold hold = engine_.hold_lanes();
          Tensor t(DType::float32, {4});
          ids_["create"] = o.submit(nothing, out(t), named("create"));
          ids_["write"] = o.submit(nothing, in(b_.tensor), out(a_.tensor), named("write"));
          ids_["read"] = o.submit(nothing, in(b_.tensor), in(a_.tensor), named("read"));
          ids_["rewrite"] = o.submit(nothing, out(a_.tensor), named("rewrite"));
          ids_["again"] = o.submit(nothing, out(a_.tensor), named("again"));
          ids_["use"] = o.submit(nothing, creator_only(in(t)), named("use"));
          ids_["last"] = o.submit(nothing, after(ids_["use"]), named("la\"st"));
        },
        {.name = "hazards", .keep_graph = true});
    EXPECT_TRUE(ends(run));
    run.result();
    return run;
  }
  const GraphEdge* edge(const std::vector<GraphEdge>& edges, const char* from, const char* to) {
    const auto found = std::find_if(edges.begin(), edges.end(), [&](const GraphEdge& e) {
      return e.from == ids_[from] && e.to == ids_[to];
    });
    return found == edges.end() ? nullptr : &*found;
  }

  Engine engine_{thread_lanes(2)};
  Floats a_{engine_, {4}};
  Floats b_{engine_, {4}};
  std::map<std::string, TaskId> ids_;
};

TEST_F(GraphExport, EveryEdgeSaysItsHazardAndArgument) {
  const Graph graph = every_hazard().graph();
  struct Expected {
    const char* from;
    const char* to;
    Hazard hazard;
    std::int32_t argument;
  };
  const Expected expected[] = {{"write", "read", Hazard::read_after_write, 1},
                               {"rewrite", "again", Hazard::write_after_write, 0},
                               {"read", "rewrite", Hazard::write_after_read, 0},
                               {"create", "use", Hazard::creator, 0},
                               {"use", "last", Hazard::explicit_after, -1}};
  // One more is right, though it says nothing new: the rewriter behind the first writer.
  const std::size_t implied = edge(graph.edges, "write", "rewrite") != nullptr ? 1 : 0;
  EXPECT_EQ(graph.edges.size(), std::size(expected) + implied);
  for (const Expected& e : expected) {
    const GraphEdge* found = edge(graph.edges, e.from, e.to);
    ASSERT_NE(found, nullptr) << e.from << " -> " << e.to;
    EXPECT_EQ(found->hazard, e.hazard) << e.from << " -> " << e.to;
    EXPECT_EQ(found->argument, e.argument) << e.from << " -> " << e.to;
    EXPECT_TRUE(found->waited) << e.from << " -> " << e.to;
    EXPECT_FALSE(found->assumed);
  }
}

TEST_F(GraphExport, NodesAreInSubmissionOrderWithTimesThatFit) {
  const Graph graph = every_hazard().graph();
  EXPECT_EQ(graph.run, "hazards");
  ASSERT_EQ(graph.nodes.size(), 7U);
  std::map<std::uint64_t, GraphNode> by_id;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& node = graph.nodes[i];
    by_id[node.task.value] = node;
    EXPECT_EQ(node.state, TaskState::done) << node.name;
    EXPECT_GE(node.submitted, graph.nodes[i == 0 ? 0 : i - 1].submitted);
    EXPECT_GT(node.submitted.count(), 0);
    EXPECT_GE(node.ready, node.submitted) << node.name;
    EXPECT_GE(node.started, node.ready) << node.name;
    EXPECT_GE(node.ended, node.started) << node.name;
    EXPECT_LT(node.lane.value, 2U);
  }
  EXPECT_EQ(graph.nodes[1].name, "write");
  for (const GraphEdge& e : graph.edges) {
    EXPECT_GE(by_id[e.to.value].ready, by_id[e.from.value].started);
  }
}

TEST_F(GraphExport, LastEdgeIsTheOneThatWasReleasedLast) {
  Gate slow;
  TaskId quick_id;
  TaskId slow_id;
  TaskId waiter;
  const strata::Run run = engine_.submit(
      [&](Orchestration& o) {
        slow_id = o.submit([&](TaskContext&) { slow.wait(); }, out(a_.tensor));
        quick_id = o.submit([&](TaskContext&) {}, out(b_.tensor), after(o.submit(nullptr)));
        waiter = o.submit(nothing, in(a_.tensor), in(b_.tensor));
        o.wait(quick_id);
        slow.open();
      },
      {.keep_graph = true});
  ASSERT_TRUE(ends(run));
  const std::vector<GraphEdge> edges = run.why(waiter);
  ASSERT_EQ(edges.size(), 2U);
  for (const GraphEdge& e : edges) {
    EXPECT_EQ(e.to, waiter);
    EXPECT_EQ(e.last, e.from == slow_id);
  }
}

TEST_F(GraphExport, WaitingTaskOfAnyRunSaysWhatItWaitsFor) {
  Gate proceed;
  Gate submitted;
  TaskId writer;
  TaskId reader;
  const strata::Run run = engine_.submit([&](Orchestration& o) {
    writer = o.submit([&](TaskContext&) { proceed.wait(); }, out(a_.tensor));
    reader = o.submit(nothing, in(b_.tensor), in(a_.tensor));
    submitted.open();
  });
  ASSERT_TRUE(submitted.wait());
  const std::vector<GraphEdge> edges = run.why(reader);
  ASSERT_EQ(edges.size(), 1U);
  EXPECT_EQ(edges[0].from, writer);
  EXPECT_EQ(edges[0].to, reader);
  EXPECT_EQ(edges[0].hazard, Hazard::read_after_write);
  EXPECT_EQ(edges[0].argument, 1);
  EXPECT_TRUE(edges[0].waited);
  EXPECT_TRUE(run.why(writer).empty());
  proceed.open();
  ASSERT_TRUE(ends(run));
  EXPECT_EQ(run.why(reader).size(), 1U);  // Its place in the window was not used again.
  EXPECT_THROW((void)run.graph(), InvalidState);
}

TEST_F(GraphExport, UnknownTaskIsRefused) {
  const strata::Run kept = every_hazard();
  EXPECT_THROW((void)kept.why(TaskId{0}), InvalidArgument);
  EXPECT_THROW((void)kept.why(TaskId{~std::uint64_t{0}}), InvalidArgument);
  const strata::Run bare = engine_.run([&](Orchestration& o) { o.submit(nothing); });
  EXPECT_THROW((void)bare.why(ids_["write"]), Error);
  EXPECT_THROW((void)bare.why(TaskId{~std::uint64_t{0}}), Error);
}

TEST_F(GraphExport, EdgesToTasksThatHadEndedAreKeptAsNotWaitedFor) {
  TaskId writer;
  TaskId reader;
  const strata::Run run = engine_.run(
      [&](Orchestration& o) {
        writer = o.submit(nothing, out(a_.tensor));
        o.wait(writer);
        reader = o.submit(nothing, in(a_.tensor));
      },
      {.keep_graph = true});
  const std::vector<GraphEdge> edges = run.why(reader);
  ASSERT_EQ(edges.size(), 1U);
  EXPECT_EQ(edges[0].from, writer);
  EXPECT_FALSE(edges[0].waited);
}

TEST_F(GraphExport, EpochOfReadersIsShownAsTheTasksInIt) {
  std::vector<TaskId> readers;
  TaskId writer;
  const strata::Run run = engine_.submit(
      [&](Orchestration& o) {
        const LaneHold hold = engine_.hold_lanes();
        for (int i = 0; i < 100; ++i)
          readers.push_back(o.submit(nothing, in(a_.tensor)));
        writer = o.submit(nothing, out(a_.tensor));
      },
      {.keep_graph = true});
  ASSERT_TRUE(ends(run));
  std::vector<TaskId> found;
  for (const GraphEdge& e : run.why(writer)) {
    EXPECT_EQ(e.hazard, Hazard::write_after_read);
    found.push_back(e.from);
  }
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, readers);
}

TEST_F(GraphExport, FailedAndSkippedTasksAreShownAsThat) {
  const strata::Run run = engine_.submit(
      [&](Orchestration& o) {
        o.submit([](TaskContext&) { throw std::runtime_error("no"); }, out(a_.tensor));
        o.submit(nothing, in(a_.tensor));
        o.submit(nothing, out(a_.tensor));
      },
      {.keep_graph = true});
  ASSERT_TRUE(ends(run));
  const Graph graph = run.graph();
  ASSERT_EQ(graph.nodes.size(), 3U);
  EXPECT_EQ(graph.nodes[0].state, TaskState::failed);
  EXPECT_EQ(graph.nodes[1].state, TaskState::skipped);
  EXPECT_EQ(graph.nodes[2].state, TaskState::done);
  EXPECT_EQ(graph.nodes[1].started.count(), 0);
}

TEST_F(GraphExport, GraphOfARunUnderWayCanBeTaken) {
  std::atomic<bool> over{false};
  const strata::Run run = engine_.submit(
      [&](Orchestration& o) {
        for (int i = 0; i < 2000; ++i)
          o.submit(nothing, in(b_.tensor), inout(a_.tensor));
        over = true;
      },
      {.keep_graph = true});
  std::size_t seen = 0;
  while (!over) {
    const Graph graph = run.graph();
    EXPECT_GE(graph.nodes.size(), seen);
    seen = graph.nodes.size();
    if (seen != 0) (void)run.why(graph.nodes.back().task);
  }
  ASSERT_TRUE(ends(run));
  EXPECT_EQ(run.graph().nodes.size(), 2000U);
}

TEST_F(GraphExport, WhyMayBeAskedWhileTheWindowIsInUse) {
  std::atomic<bool> over{false};
  std::atomic<std::uint64_t> newest{0};
  const strata::Run run = engine_.submit([&](Orchestration& o) {
    for (int i = 0; i < 5000; ++i) {
      newest = o.submit(nothing, in(b_.tensor), inout(a_.tensor)).value;
    }
    over = true;
  });
  while (!over) {
    const TaskId task{newest};
    if (!task) continue;
    try {
      for (const GraphEdge& e : run.why(task))
        EXPECT_EQ(e.to, task);
    } catch (const InvalidState&) {
      // It had left the window.
    }
  }
  ASSERT_TRUE(ends(run));
}

TEST_F(GraphExport, JsonReadsBackAsTheSameGraph) {
  const Graph graph = every_hazard().graph();
  const nlohmann::json json = nlohmann::json::parse(graph.to_json());
  EXPECT_EQ(json.at("run"), "hazards");
  ASSERT_EQ(json.at("nodes").size(), graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const nlohmann::json& node = json["nodes"][i];
    EXPECT_EQ(node.at("task"), graph.nodes[i].task.value);
    EXPECT_EQ(node.at("name"), graph.nodes[i].name);
    EXPECT_EQ(node.at("state"), "done");
    EXPECT_EQ(node.at("lane"), graph.nodes[i].lane.value);
    EXPECT_EQ(node.at("submitted_ns"), graph.nodes[i].submitted.count());
    EXPECT_EQ(node.at("ready_ns"), graph.nodes[i].ready.count());
    EXPECT_EQ(node.at("started_ns"), graph.nodes[i].started.count());
    EXPECT_EQ(node.at("ended_ns"), graph.nodes[i].ended.count());
  }
  ASSERT_EQ(json.at("edges").size(), graph.edges.size());
  for (std::size_t i = 0; i < graph.edges.size(); ++i) {
    const nlohmann::json& e = json["edges"][i];
    EXPECT_EQ(e.at("from"), graph.edges[i].from.value);
    EXPECT_EQ(e.at("to"), graph.edges[i].to.value);
    EXPECT_EQ(e.at("hazard"), std::string(name_of(graph.edges[i].hazard)));
    EXPECT_EQ(e.at("argument"), graph.edges[i].argument);
    EXPECT_EQ(e.at("assumed"), graph.edges[i].assumed);
    EXPECT_EQ(e.at("waited"), graph.edges[i].waited);
    EXPECT_EQ(e.at("last"), graph.edges[i].last);
  }
}

TEST_F(GraphExport, DotHasEveryNodeAndEdgeAndQuotesNames) {
  const Graph graph = every_hazard().graph();
  const std::string dot = graph.to_dot();
  EXPECT_EQ(dot.rfind("digraph \"hazards\" {", 0), 0U) << dot;
  EXPECT_EQ(std::count(dot.begin(), dot.end(), '{'), 1);
  EXPECT_EQ(std::count(dot.begin(), dot.end(), '}'), 1);
  std::size_t arrows = 0;
  for (std::size_t at = dot.find("->"); at != std::string::npos; at = dot.find("->", at + 2)) {
    ++arrows;
  }
  EXPECT_EQ(arrows, graph.edges.size());
  for (const char* text : {"\"write\"", "\"rewrite\"", "la\\\"st", "read after write (argument 1)",
                           "write after read (argument 0)", "creator (argument 0)"}) {
    EXPECT_NE(dot.find(text), std::string::npos) << text << "\n" << dot;
  }
}

TEST_F(GraphExport, TextThatIsNotUtf8DoesNotBreakTheExport) {
  const strata::Run run =
      engine_.run([&](Orchestration& o) { o.submit(nothing, named("caf\xe9 \x01\n\\")); },
                  {.name = "r\xff", .keep_graph = true});
  const Graph graph = run.graph();
  std::string text;
  EXPECT_NO_THROW(text = graph.to_json());
  EXPECT_TRUE(nlohmann::json::accept(text));
  EXPECT_FALSE(graph.to_dot().empty());
}

TEST_F(GraphExport, PredecessorOfAnotherRunIsNamedOnce) {
  Gate proceed;
  Gate submitted;
  const strata::Run first = engine_.submit([&](Orchestration& o) {
    o.submit([&](TaskContext&) { proceed.wait(); }, out(a_.tensor));
    submitted.open();
  });
  ASSERT_TRUE(submitted.wait());
  const strata::Run second = engine_.submit(
      [&](Orchestration& o) {
        o.submit(nothing, in(a_.tensor));
        o.submit(nothing, in(a_.tensor));
        proceed.open();
      },
      {.keep_graph = true});
  ASSERT_TRUE(ends(first));
  ASSERT_TRUE(ends(second));
  const std::string dot = second.graph().to_dot();
  const std::size_t once = dot.find("task of another run");
  EXPECT_NE(once, std::string::npos) << dot;
  EXPECT_EQ(dot.find("task of another run", once + 1), std::string::npos) << dot;
}

}  // namespace
}  // namespace strata::test
