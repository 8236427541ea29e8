//! `install` and `uninstall`: the systemd units of a binding.

use std::path::Path;

use setup::dropin::Needs;
use setup::layout::Layout;
use setup::{Arguments, Error, Program};

use crate::binding::{Binding, TokenRef};
use crate::engine::EngineKind;

/// The units that this program brings.
static PROGRAM: Program = Program {
    name: "sage-connector",
    enabled: "service",
    system: &[("sage-connector@.service", include_str!("../../systemd/sage-connector@.service"))],
    user: &[(
        "sage-connector@.service",
        include_str!("../../systemd/user/sage-connector@.service"),
    )],
    sysusers: include_str!("../../systemd/sysusers.conf"),
    tmpfiles: include_str!("../../systemd/tmpfiles.conf"),
};

/// Installs.
///
/// # Errors
/// When the binding does not fit the units, or a step fails.
pub(crate) fn install(arguments: &Arguments) -> Result<(), Error> {
    let layout = arguments.layout(&PROGRAM)?;
    let needs = needs(&arguments.name, &layout)?;
    let exe = std::env::current_exe().map_err(|error| Error::Refused(error.to_string()))?;
    arguments.carry_out(&setup::install(&PROGRAM, &layout, &needs, &exe)?)
}

/// Takes away what was installed.
///
/// # Errors
/// When a step fails.
pub(crate) fn uninstall(arguments: &Arguments) -> Result<(), Error> {
    let layout = arguments.layout(&PROGRAM)?;
    arguments.carry_out(&setup::uninstall(&PROGRAM, &layout)?)
}

/// What a binding needs beyond the units.
fn needs(name: &str, layout: &Layout) -> Result<Needs, Error> {
    let path = layout.config.join("binding.json");
    let shown = path.display();
    let text = std::fs::read_to_string(&path).map_err(|error| {
        Error::Refused(format!(
            "{shown}: {error}; write it first, `sage-connector init` begins one"
        ))
    })?;
    let binding = Binding::parse(&text, &shown.to_string())
        .map_err(|error| Error::Refused(error.to_string()))?;
    setup::expect(&path, "name", Path::new(&binding.name), Path::new(name))?;
    setup::expect(&path, "dataRoot and name", &binding.folder(), &layout.state)?;
    let socket = layout.runtime.join("executor.sock");
    setup::expect(&path, "executor.socket", &binding.executor.socket, &socket)?;
    let Some(discord) = &binding.discord else {
        return Err(Error::Refused(format!(
            "{shown}: without a `discord` section there is nothing to serve; talk to it by \
             `sage-connector chat`"
        )));
    };
    let mut needs = Needs::default();
    match &discord.token {
        TokenRef::Credential(name) => needs.credentials.push(name.clone()),
        TokenRef::File(file) => needs.secret(layout, file),
    }
    let engine = &binding.engine;
    let keys = [
        engine.openai.as_ref().and_then(|one| one.key_file.as_ref()),
        engine.pi.as_ref().and_then(|one| one.key_file.as_ref()),
    ];
    keys.into_iter().flatten().for_each(|key| needs.secret(layout, key));
    let openai = engine.openai.iter().filter_map(|one| one.ca_file.as_ref());
    let pi = engine.pi.iter().flat_map(|one| [&one.node, &one.cli]).flatten();
    openai.chain(pi).chain(&discord.ca_file).for_each(|file| needs.read(file));
    engine.pi.iter().for_each(|pi| needs.read(&pi.install));
    engine.context.iter().for_each(|context| needs.read(&context.folder));
    if engine.kind == EngineKind::Pi {
        // It compiles at run time.
        needs.more.push("MemoryDenyWriteExecute=no");
    }
    Ok(needs)
}
