package top

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/live"
	"kubelot.dev/cli/internal/live/feed"
)

const (
	// drawEvery bounds how often a picture is made while messages pass, and at least how often: ages change.
	drawEvery = 500 * time.Millisecond
	// lookEvery is how often the screen changes where no message passes.
	lookEvery = time.Second
)

// Options are what a view needs.
type Options struct {
	Feed    feed.Feed
	Sources Sources
	// In and Out are the terminal.
	In, Out *os.File
	// NoColor takes the colours away. NO_COLOR does so too.
	NoColor bool
}

// Run shows the view until it is closed or ctx ends.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &shooter{feed: o.Feed, model: live.New(), asked: make(chan string, 1)}
	var running sync.WaitGroup
	d := desk{ctx: ctx, watch: s.watch, sources: o.Sources, running: &running}
	program := tea.NewProgram(newScreen(d), options(ctx, o)...)
	running.Go(func() { s.run(ctx, func(m tea.Msg) { program.Send(m) }) })
	_, err := program.Run()
	killed := ctx.Err() != nil // a signal ends the view as a key does
	cancel()
	running.Wait()
	if err == nil || killed && errors.Is(err, tea.ErrProgramKilled) {
		return nil
	}
	return fmt.Errorf("the terminal: %w", err)
}

func options(ctx context.Context, o Options) []tea.ProgramOption {
	all := []tea.ProgramOption{
		tea.WithContext(ctx), tea.WithInput(o.In), tea.WithOutput(o.Out), tea.WithoutSignalHandler(), tea.WithFPS(30),
	}
	if o.NoColor {
		all = append(all, tea.WithColorProfile(colorprofile.Ascii))
	}
	return all
}

// shooter owns the model: it takes the inputs and makes pictures of them.
type shooter struct {
	feed  feed.Feed
	model *live.Model
	asked chan string
}

// watch has the pictures come with the whole answer for a pod. It doesn't wait: only the last wish counts.
func (s *shooter) watch(uid string) {
	for {
		select {
		case s.asked <- uid:
			return
		case <-s.asked:
		}
	}
}

// run ends with ctx. A feed that ends leaves its last picture.
func (s *shooter) run(ctx context.Context, show func(tea.Msg)) {
	tick := time.NewTicker(drawEvery)
	defer tick.Stop()
	inputs, uid := s.feed.Inputs, ""
	dirty, drawn := true, time.Time{}
	draw := func() {
		show(s.shot(uid))
		dirty, drawn = false, time.Now()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case in, ok := <-inputs:
			if !ok {
				inputs = nil
				draw()
				continue
			}
			s.model.Take(in)
			dirty = true
		case uid = <-s.asked:
			draw()
		case <-tick.C:
			if dirty || time.Since(drawn) >= lookEvery {
				draw()
			}
		}
	}
}

func (s *shooter) shot(uid string) shot {
	now := s.feed.Now()
	msg := shot{picture: s.model.Picture(now)}
	if answer, ok := s.model.Why(topicRef(msg.picture, uid), now); ok {
		msg.answer = &answer
	}
	return msg
}

// topicRef names the pod with the UID.
func topicRef(p live.Picture, uid string) topic.Ref {
	for _, pod := range p.Pods {
		if pod.UID == uid {
			return pod.Ref
		}
	}
	return topic.Ref{}
}
