// From tokens to text: the output thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/bounded_queue.h"
#include "base/ids.h"
#include "engine/engine_core.h"
#include "engine/output_channel.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"

namespace hisparse::engine {

// The bytes that a token stands for; empty for control tokens. Any thread.
using TokenBytes = std::function<std::string(base::TokenId)>;

// What the output stage asks of the engine.
struct OutputRequests {
  std::function<void(base::SequenceId)> stop;    // a stop string matched: no more tokens are needed
  std::function<void(base::SequenceId)> cancel;  // the client does not read
};

// Owns the detokenizer and stop matcher of each open request and one thread. Messages of one
// request are handled in order: open, then its token events. Never blocks on a client.
class OutputStage {
 public:
  OutputStage(TokenBytes token_bytes, OutputRequests requests, std::size_t queue_capacity);
  ~OutputStage();
  OutputStage(const OutputStage&) = delete;
  OutputStage& operator=(const OutputStage&) = delete;

  // Engine thread. Both wait while the queue is full: the stage always makes progress.
  void open(base::SequenceId id, std::shared_ptr<OutputChannel> channel,
            std::vector<std::string> stops);
  void deliver(std::vector<TokenEvent> events);

 private:
  struct Open {
    base::SequenceId id;
    std::shared_ptr<OutputChannel> channel;
    std::vector<std::string> stops;
  };
  using Message = std::variant<Open, std::vector<TokenEvent>>;

  struct Stream {
    std::shared_ptr<OutputChannel> channel;
    text::Detokenizer detokenizer;
    text::StopMatcher stops;
  };

  void run();
  void handle(TokenEvent event);
  // Pushes text and, at the end, the finish. False when the stream is over.
  bool emit_token(base::SequenceId id, Stream& stream, base::TokenId token, const Usage& usage);
  void emit_finish(Stream& stream, TokenEvent event);

  const TokenBytes token_bytes_;
  const OutputRequests requests_;
  base::BoundedQueue<Message> queue_;
  std::unordered_map<base::SequenceId, Stream> streams_;  // output thread only
  std::thread thread_;
};

}  // namespace hisparse::engine
