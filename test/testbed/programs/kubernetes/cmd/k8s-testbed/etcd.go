package main

import (
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"go.etcd.io/etcd/server/v3/embed"
)

// runEtcd serves a single-member etcd until SIGTERM or SIGINT. Data is not
// synced to disk: a test's cluster never outlives its machine.
func runEtcd() int {
	if err := serveEtcd(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "etcd: %v\n", err)
		return 1
	}
	return 0
}

func serveEtcd(args []string) error {
	flags := flag.NewFlagSet("etcd", flag.ContinueOnError)
	dataDir := flags.String("data-dir", "", "directory of the database")
	client := flags.String("listen-client-url", "", "URL to serve clients on, e.g. unix://127.0.0.1:2379 or "+
		"http://127.0.0.1:2379")
	peer := flags.String("listen-peer-url", "", "URL to serve peers on; required by etcd even with a single member")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dataDir == "" || *client == "" || *peer == "" {
		return errors.New("--data-dir, --listen-client-url and --listen-peer-url are required")
	}
	clientURL, err := url.Parse(*client)
	if err != nil {
		return fmt.Errorf("parse --listen-client-url: %w", err)
	}
	peerURL, err := url.Parse(*peer)
	if err != nil {
		return fmt.Errorf("parse --listen-peer-url: %w", err)
	}
	return runMember(memberConfig(*dataDir, *clientURL, *peerURL))
}

func memberConfig(dir string, client, peer url.URL) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = "testbed"
	cfg.Dir = dir
	cfg.UnsafeNoFsync = true
	cfg.ListenClientUrls = []url.URL{client}
	cfg.AdvertiseClientUrls = []url.URL{client}
	cfg.ListenPeerUrls = []url.URL{peer}
	cfg.AdvertisePeerUrls = []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.LogLevel = "warn"
	cfg.LogOutputs = []string{"stderr"}
	return cfg
}

func runMember(cfg *embed.Config) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	member, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("start member in %s: %w", cfg.Dir, err)
	}
	defer member.Close()
	select {
	case <-stop:
		return nil
	case err := <-member.Err():
		return fmt.Errorf("member in %s failed: %w", cfg.Dir, err)
	}
}
