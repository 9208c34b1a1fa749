package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/pods"
	"kubelot.dev/cli/internal/why"
	"kubelot.dev/cli/internal/words"
)

// retryReport is what kubelot retry has done.
type retryReport struct {
	Pod topic.Ref `json:"pod"`
	// Ended are the back-offs that were ended.
	Ended []topic.Backoff `json:"ended"`
	// Volumes are those that can't be mounted. kubelot-volume tries them again by itself.
	Volumes []string `json:"volumes,omitempty"`
}

func retryCommand(stdout *os.File) *cobra.Command {
	var (
		busAt             busFlags
		container, output string
	)
	c := &cobra.Command{
		Use:   "retry POD",
		Short: "End a pod's back-off: try again at once what has failed.",
		Long: `Ends what a pod waits for after failures: a container's back-off after crashes (CrashLoopBackOff), that of an
image's pull (ImagePullBackOff), the pauses before the next try to create a sandbox or a container, and the like. It is
tried again at once. If it fails again, the next back-off is as short as the first. With --container it is only what
that container waits for. POD is as for kubelot why.

Nothing is restarted that runs. Volumes that can't be mounted are named: kubelot-volume tries them again by itself,
at intervals of at most two minutes.

Exit codes: 0 if a back-off was ended, 1 on errors, 2 if the pod was in none.`,
		Example: `  kubelot retry default/web-0
  kubelot retry web-0 --container app
  kubelot retry web-0 -o json | jq '.ended[].reason'`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkOutput(output, "text"); err != nil {
				return err
			}
			conn, err := busAt.connect(c.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			report, err := retry(c.Context(), conn, args[0], container)
			if err != nil {
				return err
			}
			if output == "json" {
				err = writeJSON(stdout, report)
			} else if text := retryText(report, time.Now()); text != "" {
				err = say(stdout, text)
			}
			return errors.Join(err, report.verdict())
		},
	}
	busAt.register(c)
	c.Flags().StringVarP(&container, "container", "c", "", "only what this container waits for")
	offerOutput(c, &output, "text")
	return c
}

func retry(ctx context.Context, conn *bus.Conn, name, container string) (retryReport, error) {
	limited, cancel := context.WithTimeout(ctx, busPatience)
	defer cancel()
	state, err := pods.Read(limited, conn)
	if err != nil {
		return retryReport{}, err
	}
	ref, err := why.Find(why.Snapshot{State: state}, name)
	if err != nil {
		return retryReport{}, err
	}
	volumes, err := topic.VolumeState.Read(limited, conn)
	if err != nil {
		return retryReport{}, err
	}
	reply, err := ask(ctx, conn, "podsync", topic.PodRetry, topic.Retry{Ref: ref, Container: container})
	if err != nil {
		return retryReport{}, fmt.Errorf("pod %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	report := retryReport{Pod: ref, Ended: reply.Ended}
	for _, name := range slices.Sorted(maps.Keys(volumes[ref.UID].Volumes)) {
		if volumes[ref.UID].Volumes[name].Phase == topic.VolumeFailed {
			report.Volumes = append(report.Volumes, name)
		}
	}
	return report, nil
}

// retryText is a line for each back-off that was ended, and for each volume.
func retryText(r retryReport, now time.Time) string {
	var lines []string
	for _, b := range r.Ended {
		line := "pod " + r.Pod.Namespace + "/" + r.Pod.Name
		if b.Container != "" {
			line = "container " + b.Container
		}
		line += ": " + b.Reason + " has ended"
		if left := b.Until.Sub(now); left > 0 {
			line += ", " + words.Brief(left) + " early"
		}
		lines = append(lines, line)
	}
	for _, v := range r.Volumes {
		lines = append(lines, "volume "+v+": can't be mounted; kubelot-volume tries it again by itself")
	}
	return strings.Join(lines, "\n")
}

// verdict is what the exit code says.
func (r retryReport) verdict() error {
	if len(r.Ended) > 0 {
		return nil
	}
	called := r.Pod.Namespace + "/" + r.Pod.Name
	return exitError{
		fmt.Errorf("pod %s was in no back-off: kubelot why %s says what it waits for", called, called), exitProblems,
	}
}
