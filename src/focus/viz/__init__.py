"""Views of trees and runs as text for a terminal. Formatting only: nothing here reads a file."""
