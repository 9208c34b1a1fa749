package daemon

import (
	"fmt"
	"io"
	"log/slog"

	"k8s.io/klog/v2"

	"kubelot.dev/daemon/config"
)

// logStyle is how log lines look.
type logStyle string

const (
	styleAuto  logStyle = "auto"  // human on a terminal, else what logging.format says
	styleHuman logStyle = "human" // coloured, for eyes
	styleText  logStyle = "text"  // key=value
	styleJSON  logStyle = "json"
)

func (s *logStyle) String() string { return string(*s) }
func (s *logStyle) Type() string   { return "style" }

func (s *logStyle) Set(text string) error {
	switch style := logStyle(text); style {
	case styleAuto, styleHuman, styleText, styleJSON:
		*s = style
		return nil
	}
	return fmt.Errorf("want auto, human, text or json, got %q", text)
}

// logOptions are the log's settings from the command line and the configuration.
type logOptions struct {
	style  logStyle
	level  slog.LevelVar
	daemon string
	// grouped is a member of a group: eyes need the daemon's name too.
	grouped   bool
	libraries *libraries
}

func (o *logOptions) configure(c *config.Config, daemon string, terminal bool) {
	o.daemon = daemon
	o.setVerbosity(uint32(c.Kubelet.Logging.Verbosity))
	if o.style != "" && o.style != styleAuto {
		return
	}
	switch {
	case c.Kubelet.Logging.Format == "json":
		o.style = styleJSON
	case terminal:
		o.style = styleHuman
	default:
		o.style = styleText
	}
}

// logger builds the logger, and makes the Kubernetes libraries log through it.
func (o *logOptions) logger(w io.Writer) *slog.Logger {
	log := o.build(w)
	klog.SetSlogLogger(log)
	return log
}

// build builds the logger.
func (o *logOptions) build(w io.Writer) *slog.Logger {
	handlerOptions := &slog.HandlerOptions{Level: &o.level}
	switch o.style {
	case styleHuman:
		log := slog.New(newHumanHandler(w, &o.level))
		if o.grouped {
			log = log.With("daemon", o.daemon)
		}
		return log
	case styleJSON:
		return slog.New(slog.NewJSONHandler(w, handlerOptions)).With("daemon", o.daemon)
	default:
		return slog.New(slog.NewTextHandler(w, handlerOptions)).With("daemon", o.daemon)
	}
}
