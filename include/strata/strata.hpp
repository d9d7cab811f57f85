// All public headers of the graph engine.
#pragma once

#include "strata/engine.hpp"
#include "strata/error.hpp"
#include "strata/external_lane.hpp"
#include "strata/orchestration.hpp"
#include "strata/recording.hpp"
#include "strata/run.hpp"
#include "strata/task.hpp"
#include "strata/task_context.hpp"
#include "strata/tensor.hpp"
