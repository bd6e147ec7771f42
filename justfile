# Each recipe is one script or one cargo command; nothing lives here alone.

# List the recipes
default:
    @just --list

# Drive a real Chromium with examples/first.rhai
quickstart:
    scripts/quickstart

# Run every test
test *ARGS:
    scripts/test {{ARGS}}

# Run what CI runs
ci:
    .ci/run

# Run the benchmarks
bench *ARGS:
    cargo bench --locked {{ARGS}}

# Format the sources
fmt:
    cargo fmt --all
