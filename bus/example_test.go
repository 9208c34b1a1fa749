package bus_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
)

// Volume is the payload of the examples. All topics of kubelot are in package topic.
type Volume struct {
	Path string `json:"path"`
}

// A state keeps the last value of each key. A reader that comes later gets it first.
func ExampleState() {
	volumes := bus.NewState[Volume](bus.Spec{
		Name: "example.volume", Keys: "<uid>", Schema: 1, Doc: "Where the volume of a pod is.",
	})

	// bustest is the bus in memory. A daemon gets its connection from the chassis, as daemon.Env.Bus.
	b := bustest.New()
	volume, podsync := b.Conn("volume"), b.Conn("podsync")
	defer volume.Close()
	defer podsync.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	writer := volumes.Writer(volume)
	if err := writer.Set("pod-a", Volume{Path: "/old"}); err != nil {
		fmt.Println(err)
	}
	// Set doesn't wait for the bus, which may be away.
	if err := errors.Join(writer.Set("pod-a", Volume{Path: "/new"}), writer.Flush(ctx)); err != nil {
		fmt.Println(err)
	}

	changes, err := volumes.Watch(ctx, podsync)
	if err != nil {
		fmt.Println(err)
		return
	}
	for change := range changes {
		switch {
		case change.Synced:
			fmt.Println("all retained values were delivered")
			if err := writer.Delete("pod-a"); err != nil {
				fmt.Println(err)
			}
		case change.Deleted:
			fmt.Println(change.Key, "was removed")
			return
		default:
			fmt.Println(change.Key, change.Value.Path)
		}
	}
	// Output:
	// pod-a /new
	// all retained values were delivered
	// pod-a was removed
}

// An event is history: a reader that begins in the past gets what the bus has kept, in order.
func ExampleEvent() {
	removed := bus.NewEvent[string](bus.Spec{Name: "example.removed", Schema: 1, Doc: "What was removed."})

	b := bustest.New()
	gc, cli := b.Conn("gc"), b.Conn("cli")
	defer gc.Close()
	defer cli.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	began := time.Now()
	publisher := removed.Publisher(gc)
	for _, object := range []string{"container", "sandbox"} {
		if err := publisher.Publish("", object); err != nil {
			fmt.Println(err)
		}
	}
	events := removed.Subscribe(ctx, cli, bus.From{Since: began})
	for range 2 {
		fmt.Println((<-events).Value)
	}
	// Output:
	// container
	// sandbox
}

// A call is a request with one reply. A call that nobody serves fails at once.
func ExampleCall() {
	double := bus.NewCall[int, int](bus.Spec{Name: "example.double", Schema: 1, Doc: "Answers with twice the number."})

	b := bustest.New()
	server, client := b.Conn("server"), b.Conn("client")
	defer server.Close()
	defer client.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	_, err := double.Do(ctx, client, 1)
	fmt.Println(errors.Is(err, bus.ErrNoResponder))

	serving := make(chan error, 1)
	serveCtx, stop := context.WithCancel(ctx)
	go func() {
		serving <- double.Serve(serveCtx, server, func(_ context.Context, n int) (int, error) { return 2 * n, nil })
	}()
	answer, err := double.Do(ctx, client, 21)
	for errors.Is(err, bus.ErrNoResponder) { // the server has not begun
		answer, err = double.Do(ctx, client, 21)
	}
	fmt.Println(answer, err)

	stop()
	fmt.Println(<-serving)
	// Output:
	// true
	// 42 <nil>
	// <nil>
}

// A value that makes no sense doesn't reach a reader, whoever wrote it: it is logged and left out.
func ExampleState_Checked() {
	volumes := bus.NewState[Volume](bus.Spec{
		Name: "example.volume", Keys: "<uid>", Schema: 1, Doc: "Where the volume of a pod is.",
	}).Checked(func(_ string, v Volume) error {
		if v.Path == "" {
			return errors.New("it has no path")
		}
		return nil
	})

	b := bustest.New()
	conn := b.Conn("volume")
	defer conn.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	writer := volumes.Writer(conn)
	err := errors.Join(writer.Set("a", Volume{Path: "/a"}), writer.Set("b", Volume{}), writer.Flush(ctx))
	if err != nil {
		fmt.Println(err)
	}
	values, err := volumes.Read(ctx, conn)
	fmt.Println(values, err)
	// Output: map[a:{/a}] <nil>
}

// A contract lists what a daemon does on the bus. Whatever it doesn't list is refused.
func ExampleContract() {
	double := bus.NewCall[int, int](bus.Spec{Name: "example.double", Schema: 1, Doc: "Answers with twice the number."})
	contracts := []bus.Contract{
		{Daemon: "server", Serves: []bus.Topic{double}},
		{Daemon: "stranger"}, // lacks Calls: []bus.Topic{double}
	}

	b := bustest.New()
	b.Restrict(contracts...)
	stranger := b.Conn("stranger")
	defer stranger.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	_, err := double.Do(ctx, stranger, 21)
	fmt.Println(errors.Is(err, bus.ErrDenied))
	// Output: true
}
