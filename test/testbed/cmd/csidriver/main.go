// Command csidriver is a CSI driver for tests, see package csidriver.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"kubelot.dev/test/csidriver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "csidriver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var cfg csidriver.Config
	var segment string
	flag.StringVar(&cfg.Name, "name", "test.csi.kubelot.dev", "name of the driver")
	flag.StringVar(&cfg.NodeID, "node-id", "node", "ID of this node")
	flag.StringVar(&cfg.State, "state", "", "directory of its volumes, its log of calls and its faults")
	flag.StringVar(&cfg.Socket, "socket", "", "path of its unix socket")
	flag.StringVar(&cfg.Registry, "registry", "", "the node agent's directory plugins_registry; none: it doesn't register")
	flag.StringVar(&segment, "topology", "", "topology of this node, KEY=VALUE")
	flag.Int64Var(&cfg.MaxVolumes, "max-volumes", 0, "how many volumes this node may have")
	flag.BoolVar(&cfg.NoStage, "no-stage", false, "volumes aren't staged")
	flag.BoolVar(&cfg.NoAttach, "no-attach", false, "volumes aren't attached")
	flag.BoolVar(&cfg.NoExpand, "no-expand", false, "volumes don't grow")
	flag.BoolVar(&cfg.NoStats, "no-stats", false, "volumes have no figures")
	flag.BoolVar(&cfg.MountGroup, "mount-group", false, "the driver gives files to the fsGroup")
	flag.Parse()
	if cfg.State == "" || cfg.Socket == "" {
		return fmt.Errorf("--state and --socket are needed")
	}
	cfg.Segment[0], cfg.Segment[1], _ = strings.Cut(segment, "=")
	driver, err := csidriver.New(cfg)
	if err != nil {
		return err
	}
	return driver.Run(ctx)
}
