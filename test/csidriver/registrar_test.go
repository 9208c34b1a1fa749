package csidriver_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"kubelot.dev/test/csidriver"
)

// The calls of the registration are logged, and go wrong where they are to, as those of the driver itself.
func TestRegistrationGoesWrong(t *testing.T) {
	dir := t.TempDir()
	cfg := csidriver.Config{
		Name: "wrong.csi.test", NodeID: "node", State: dir, Socket: dir + "/csi.sock", Registry: dir,
	}
	driver, err := csidriver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	var running sync.WaitGroup
	running.Go(func() {
		if err := driver.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer cancel()
	if err := csidriver.Wait(ctx, cfg.RegistrationSocket()); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("unix://"+cfg.RegistrationSocket(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := registerapi.NewRegistrationClient(conn)
	fault := csidriver.Fault{Times: 1, Code: codes.Internal, Message: "not now"}
	for method, call := range map[string]func() error{
		"GetInfo": func() error {
			_, err := client.GetInfo(ctx, &registerapi.InfoRequest{})
			return err
		},
		"NotifyRegistrationStatus": func() error {
			_, err := client.NotifyRegistrationStatus(ctx, &registerapi.RegistrationStatus{PluginRegistered: true})
			return err
		},
	} {
		if err := csidriver.SetFault(dir, method, &fault); err != nil {
			t.Fatal(err)
		}
		if err := call(); status.Code(err) != codes.Internal {
			t.Errorf("%s: %v; want the fault", method, err)
		}
		if err := call(); err != nil {
			t.Errorf("%s after its fault: %v", method, err)
		}
		// A call that hangs ends as the next fault has it.
		if err := csidriver.SetFault(dir, method, &csidriver.Fault{Times: 1, Hang: true}); err != nil {
			t.Fatal(err)
		}
		hung := make(chan error, 1)
		running.Go(func() { hung <- call() })
		for begun(t, dir, method) < 3 {
			time.Sleep(10 * time.Millisecond)
		}
		if err := csidriver.SetFault(dir, method, &fault); err != nil {
			t.Fatal(err)
		}
		if err := <-hung; status.Code(err) != codes.Internal {
			t.Errorf("%s that hung: %v; want the fault", method, err)
		}
		if got, want := ended(t, dir, method), []string{"Internal", "OK", "Internal"}; !slices.Equal(got, want) {
			t.Errorf("%s has ended with %q; want %q", method, got, want)
		}
	}
}

// ended are the codes with which the calls of a method have ended.
func ended(t *testing.T, state, method string) (list []string) {
	t.Helper()
	for _, c := range calls(t, state) {
		if c.Method == method && c.End {
			list = append(list, c.Code)
		}
	}
	return list
}

// begun is how many calls of a method have begun.
func begun(t *testing.T, state, method string) (n int) {
	t.Helper()
	for _, c := range calls(t, state) {
		if c.Method == method && !c.End && !c.Gone {
			n++
		}
	}
	return n
}

func calls(t *testing.T, state string) []csidriver.Call {
	t.Helper()
	list, err := csidriver.ReadCalls(state)
	if err != nil {
		t.Fatal(err)
	}
	return list
}
