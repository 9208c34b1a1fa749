# kubelot: make help

.DEFAULT_GOAL := help
.PHONY: help build run cluster test test-compact unit fuzz check fmt fix gen bench soak scale \
        conformance conformance-node conformance-storage matrix skew vm vm-test
.PHONY: packages packages-test release install clean

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## the multi-call executable and its links, into .bin
	@tools/build.sh
	@ls -l .bin/kubelot .bin/kubelot-all

run: ## kubelot with a containerd of its own and the static pods of examples/ (root)
	@tools/run.sh standalone

cluster: ## the same with a Kubernetes control plane; meanwhile .run/admin.kubeconfig is for kubectl (root)
	@tools/run.sh cluster

test: ## all tests: units, then end to end on real parts (root)
	@tools/test.sh

test-compact: ## the crash suite on the crew in one process; make test has one test of it (FOCUS=expression) (root)
	@tools/test.sh --compact

unit: ## the unit tests alone
	@tools/test.sh --unit

fuzz: ## each fuzz target for a time (FOR=1m, TARGET=expression)
	@tools/fuzz.sh

check: ## format, generated files, modules, import rules, sizes, linters, units; make fix mends
	@tools/check.sh

fmt: ## format the Go files
	@tools/fmt.sh

fix: ## mend what make check complains about, as far as a machine can
	@tools/fix.sh

gen: ## write the generated files again: docs/dataflow.md, the bus's permissions, the index of docs/adr
	@cd crew && go run ./cmd/contracts

bench: ## compare kubelot with the kubelet and bare CRI calls, into docs/bench (QUICK=1, ARGS="--part latency") (root)
	@tools/bench.sh $(ARGS)

soak: ## pods come and go; fails on what grows with each (FOR=10m, or PODS=2000,20000; RUNTIME=scripted) (root)
	@tools/soak.sh

scale: ## CPU, memory and bytes on the bus with 125 to 1,000 pods, and how they grow (PODS=, PROFILES=directory) (root)
	@tools/scale.sh

conformance: ## Kubernetes' conformance specs on kubelot (AGENT=kubelet, QUICK=1, FOCUS=, REPEAT=3, VM=1) (root)
	@tools/conformance.sh

conformance-node: ## Kubernetes' node suite: devices, CPUs, topology, DRA (AGENT=, QUICK=1, FOCUS=, VM=1) (root)
	@tools/conformance-node.sh

conformance-storage: ## Kubernetes' storage suite with a CSI driver and sidecars (AGENT=kubelet, QUICK=1, FOCUS=) (root)
	@tools/conformance-storage.sh

skew: ## daemons of the last release together with those of this checkout (FOCUS=expression) (root)
	@tools/skew.sh

matrix: ## each part of a node killed, frozen, away, replaced (FOCUS=TestMatrix/pleg, FULL=1, UPDATE=1) (root)
	@tools/matrix.sh

vm: ## a node in a virtual machine, with systemd and kubelot installed, until Ctrl-C (RUNTIME=debian-containerd) (root)
	@tools/vm.sh run

vm-test: ## the tests in that machine (QUICK=1, FOCUS=expression, RUNTIME=, INSTALL=executables|packages) (root)
	@tools/vm.sh test

packages: ## deb and rpm packages into .run/packages (ARCH=amd64, FORMAT=deb, OUT=)
	@tools/packages.sh

packages-test: ## install, upgrade and remove the packages on Debian, with and without systemd (root)
	@tools/packages-test.sh

release: ## packages, archives for kubelot install, bills of materials, sums
	@tools/packages.sh --release

install: ## install into a versioned directory with systemd units (PREFIX=, DESTDIR=)
	@tools/install.sh

clean: ## remove what was built and what make run left
	@tools/clean.sh
