//! The commands. Each is one file with its arguments and one function; a new one is that file, its `mod` line and its
//! line in an enum here or in the group it belongs to.

/// An enum of commands that runs whichever was typed: `Variant => module` stands for `module::Args` and `module::run`.
macro_rules! commands {
    ($(#[$outer:meta])* $name:ident { $($(#[$inner:meta])* $variant:ident => $module:ident,)* }) => {
        $(#[$outer])*
        #[derive(Debug, clap::Subcommand)]
        pub(crate) enum $name {
            $($(#[$inner])* $variant($module::Args),)*
        }

        impl $name {
            pub(crate) fn run(self, ctx: &crate::ctx::Ctx<'_>) -> crate::error::Result<crate::error::Exit> {
                match self {
                    $(Self::$variant(args) => $module::run(ctx, args),)*
                }
            }
        }
    };
}

/// A group of commands beneath one name.
macro_rules! group {
    ($(#[$outer:meta])*) => {
        $(#[$outer])*
        #[derive(Debug, clap::Args)]
        #[command(subcommand_required = true, arg_required_else_help = true)]
        pub(crate) struct Args {
            #[command(subcommand)]
            command: Commands,
        }

        pub(crate) fn run(ctx: &crate::ctx::Ctx<'_>, args: Args) -> crate::error::Result<crate::error::Exit> {
            args.command.run(ctx)
        }
    };
}

mod completions;
mod conversation;
mod doctor;
mod draft;
mod export;
mod gc;
mod hooks;
mod import;
mod init;
mod leftovers;
mod lock;
mod man;
mod migrate;
mod mount;
mod session;
mod status;
mod unmount;

commands! {
    /// Everything `jp` does.
    Command {
        #[command(visible_aliases = ["c", "conversations"])]
        Conversation => conversation,
        Init => init,
        Mount => mount,
        #[command(visible_alias = "umount")]
        Unmount => unmount,
        Export => export,
        Import => import,
        Status => status,
        Doctor => doctor,
        #[command(visible_alias = "drafts")]
        Draft => draft,
        Migrate => migrate,
        Gc => gc,
        Hooks => hooks,
        Lock => lock,
        Session => session,
        Completions => completions,
        Man => man,
    }
}
