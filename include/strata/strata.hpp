// All public headers.
#pragma once

#include "strata/callable.hpp"
#include "strata/engine.hpp"
#include "strata/error.hpp"
#include "strata/external_lane.hpp"
#include "strata/orchestration.hpp"
#include "strata/process_scope.hpp"
#include "strata/recording.hpp"
#include "strata/run.hpp"
#include "strata/signal_scope.hpp"
#include "strata/task.hpp"
#include "strata/task_context.hpp"
#include "strata/tensor.hpp"
#include "strata/worker.hpp"
#include "strata/worker_error.hpp"
#include "strata/worker_task.hpp"
